// Lists and calls tools with the official TypeScript SDK, over standard input and over HTTP: with the version before
// 2026-07-28, which the conformance suite uses, and with the one after, in each way that it begins.
//
//     node interop.mjs MODULES URL COMMAND [ARGUMENT...]
//
// MODULES is the folder that npm has installed packages in, URL a server that listens, COMMAND one that is started.

import assert from "node:assert/strict";
import { createRequire } from "node:module";

const [modules, url, command, ...args] = process.argv.slice(2);
const require = createRequire(`${modules}/`);
const older = {
  ...require("@modelcontextprotocol/sdk/client/index.js"),
  ...require("@modelcontextprotocol/sdk/client/stdio.js"),
  ...require("@modelcontextprotocol/sdk/client/streamableHttp.js"),
};
const newer = { ...require("@modelcontextprotocol/client"), ...require("@modelcontextprotocol/client/stdio") };

/** What a client does first, and its answers. */
async function uses({ Client }, transport, options, version) {
  const client = new Client({ name: "typescript-sdk", version: "1.0.0" }, options);
  await client.connect(transport);
  if (version) assert.equal(client.getNegotiatedProtocolVersion(), version);
  assert.equal(client.getServerVersion().name, "harness");
  const { tools } = await client.listTools();
  assert.ok(tools.some((tool) => tool.name === "greet" && tool.inputSchema.required[0] === "name"));
  const greeted = await client.callTool({ name: "greet", arguments: { name: "Ada" } });
  assert.deepEqual(greeted.content, [{ type: "text", text: "Hello, Ada!" }]);
  assert.equal((await client.callTool({ name: "greet", arguments: {} })).isError, true);
  await assert.rejects(client.callTool({ name: "nothing" }), (error) => error.code === -32602);
  await client.close();
}

for (const [sdk, options, version] of [
  [older, {}, undefined],
  [newer, {}, "2025-11-25"],
  [newer, { versionNegotiation: { mode: "auto" } }, "2026-07-28"],
]) {
  await uses(sdk, new sdk.StdioClientTransport({ command, args, stderr: "inherit" }), options, version);
  await uses(sdk, new sdk.StreamableHTTPClientTransport(new URL(url)), options, version);
}
console.log("the TypeScript SDK lists and calls over both transports, in both eras");
