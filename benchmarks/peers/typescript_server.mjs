// The official TypeScript SDK's server for benchmarks/server.py: node typescript_server.mjs DIRECTORY TOOLS stdio|http
// DIRECTORY is the one whose node_modules holds the SDK, since it is not installed beside this file.
import { createServer } from "node:http";
import { createRequire } from "node:module";

const [directory, tools, transport] = process.argv.slice(2);
const require = createRequire(`${directory}/package.json`);
const { McpServer, createMcpHandler } = require("@modelcontextprotocol/server");
const { serveStdio } = require("@modelcontextprotocol/server/stdio");
const { localhostHostValidation, localhostOriginValidation, toNodeHandler } = require("@modelcontextprotocol/node");
const { z } = require("zod");

const numbers = z.object({ a: z.number().int(), b: z.number().int() });
const query = z.object({ query: z.string(), limit: z.number().int().default(10), exact: z.boolean().default(false) });
const description =
  "Searches a collection for records that match a query and returns the best ones, most relevant first.";

function makeServer() {
  const server = new McpServer({ name: "bench", version: "1.0" }, { instructions: "Adds numbers." });
  const says = (text) => ({ content: [{ type: "text", text }] });
  server.registerTool("add", { description: "Adds two numbers.", inputSchema: numbers }, ({ a, b }) => says(`${a + b}`));
  for (let number = 0; number < Number(tools) - 1; number++) {
    const name = `search_collection_${String(number).padStart(3, "0")}`;
    server.registerTool(name, { description, inputSchema: query }, ({ query }) => says(query));
  }
  return server;
}

if (transport === "stdio") {
  serveStdio(makeServer);
} else {
  const handle = toNodeHandler(createMcpHandler(makeServer));
  const isLocalHost = localhostHostValidation();
  const isLocalOrigin = localhostOriginValidation();
  const http = createServer((request, response) => {
    if (isLocalHost(request, response) && isLocalOrigin(request, response)) handle(request, response);
  });
  http.listen(0, "127.0.0.1", () => console.log(`http://127.0.0.1:${http.address().port}/mcp`));
}
