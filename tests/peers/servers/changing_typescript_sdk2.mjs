// A server on the official TypeScript SDK 2.x that changes while it runs, over stdio: node changing_typescript_sdk2.mjs DIRECTORY
// DIRECTORY is the one whose node_modules holds the SDK, since it is not installed beside this file.
import { createRequire } from "node:module";

const require = createRequire(`${process.argv[2]}/package.json`);
const { McpServer } = require("@modelcontextprotocol/server");
const { serveStdio } = require("@modelcontextprotocol/server/stdio");
const { z } = require("zod");

serveStdio(() => {
  const server = new McpServer({ name: "changing-typescript-sdk2", version: "1.0" });
  const says = (text) => ({ content: [{ type: "text", text }] });
  server.registerTool("grow", { description: "Adds a tool of that name.", inputSchema: z.object({ name: z.string() }) }, ({ name }) => {
    server.registerTool(name, { description: "Came later.", inputSchema: z.object({}) }, () => says(name));
    return says("grown");
  });
  const steps = z.object({ steps: z.number().int() });
  server.registerTool("count", { description: "Counts and reports each step.", inputSchema: steps }, async ({ steps }, ctx) => {
    const progressToken = ctx.mcpReq._meta?.progressToken;
    for (let step = 1; step <= steps; step++) {
      const params = { progressToken, progress: step, total: steps, message: `step ${step}` };
      await ctx.mcpReq.notify({ method: "notifications/progress", params });
    }
    return says(`${steps}`);
  });
  return server;
});
