// A sample server on the official TypeScript SDK 2.x: node typescript_sdk2.mjs DIRECTORY stdio|http
// DIRECTORY is the one whose node_modules holds the SDK, since it is not installed beside this file.
import { createServer } from "node:http";
import { createRequire } from "node:module";

const [directory, transport] = process.argv.slice(2);
const require = createRequire(`${directory}/package.json`);
const { McpServer, createMcpHandler } = require("@modelcontextprotocol/server");
const { serveStdio } = require("@modelcontextprotocol/server/stdio");
const { localhostHostValidation, localhostOriginValidation, toNodeHandler } = require("@modelcontextprotocol/node");
const { z } = require("zod");

function makeServer() {
  const server = new McpServer({ name: "typescript-sdk2", version: "1.0" }, { instructions: "Adds and echoes." });
  const says = (text) => ({ content: [{ type: "text", text }] });
  const numbers = z.object({ a: z.number().int(), b: z.number().int() });
  server.registerTool("add", { description: "Adds two numbers.", inputSchema: numbers }, ({ a, b }) => says(`${a + b}`));
  const text = z.object({ text: z.string() });
  server.registerTool("echo", { description: "Says the same again.", inputSchema: text }, ({ text }) => says(text));
  const name = z.object({ name: z.string() });
  server.registerPrompt("greet", { description: "Asks for a greeting.", argsSchema: name }, ({ name }) => ({
    messages: [{ role: "user", content: { type: "text", text: `Greet ${name}.` } }],
  }));
  const plain = { mimeType: "text/plain" };
  server.registerResource("greeting", "memo://greeting", plain, (uri) => ({
    contents: [{ uri: uri.href, mimeType: "text/plain", text: "Good day." }],
  }));
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
  http.listen(0, "127.0.0.1", () => console.log(`listening on http://127.0.0.1:${http.address().port}/mcp`));
}
