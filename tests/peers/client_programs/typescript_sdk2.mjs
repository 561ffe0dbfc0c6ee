// A client on the official TypeScript SDK 2.x. See README.md beside this file.
// Its first argument is the directory whose node_modules holds the SDK, since it is not installed beside this file.
import { createRequire } from "node:module";

const [directory, mode, plan, ...target] = process.argv.slice(2);
const require = createRequire(`${directory}/package.json`);
const { Client, StreamableHTTPClientTransport } = require("@modelcontextprotocol/client");
const { StdioClientTransport } = require("@modelcontextprotocol/client/stdio");

const negotiation = { mode: mode === "auto" || mode === "legacy" ? mode : { pin: mode } };
const client = new Client({ name: "tests", version: "0" }, { versionNegotiation: negotiation });
let onChange = () => {};
client.setNotificationHandler("notifications/tools/list_changed", () => onChange());

async function perform(step) {
  const args = step.arguments ?? {};
  if (step.call) {
    return (await client.callTool({ name: step.call, arguments: args })).content[0].text;
  }
  if (step.progress) {
    const seen = [];
    const onprogress = ({ progress }) => seen.push(progress);
    await client.callTool({ name: step.progress, arguments: args }, { onprogress });
    return seen;
  }
  if (step.read) {
    return (await client.readResource({ uri: step.read })).contents[0].text;
  }
  if (step.prompt) {
    return (await client.getPrompt({ name: step.prompt, arguments: args })).messages[0].content.text;
  }
  if (step.listen) {
    const changed = new Promise((resolve) => (onChange = resolve));
    const isModern = client.getProtocolEra() === "modern";
    const subscription = isModern ? await client.listen({ toolsListChanged: true }) : undefined;
    await client.callTool({ name: step.listen, arguments: {} });
    await changed;
    await subscription?.close();
    return true;
  }
  throw new Error(`no such step: ${JSON.stringify(step)}`);
}

const transport = target[0].startsWith("http")
  ? new StreamableHTTPClientTransport(new URL(target[0]))
  : new StdioClientTransport({ command: target[0], args: target.slice(1) });
await client.connect(transport);
const tools = (await client.listTools()).tools.map((tool) => tool.name);
const answers = [];
for (const step of JSON.parse(plan)) answers.push(await perform(step));
const report = {
  version: client.getNegotiatedProtocolVersion(),
  server: client.getServerVersion()?.name,
  tools,
  answers,
};
console.log(JSON.stringify(report));
await client.close();
