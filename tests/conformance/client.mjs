// Runs one scenario of the official conformance suite for clients: a project whose MCP server is the scenario's, and the
// commands that a person would run.
//
//   node client.mjs HARNESS URL
//
// The suite adds the URL, and names the scenario in the environment.
import { spawn, spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const [harness, url] = process.argv.slice(2);
const scenario = process.env.MCP_CONFORMANCE_SCENARIO ?? "";
const context = JSON.parse(process.env.MCP_CONFORMANCE_CONTEXT ?? "{}");
const room = mkdtempSync(join(tmpdir(), "harness-client-"));
const root = join(room, "project");
const environment = { ...process.env, XDG_STATE_HOME: join(room, "state"), CONFORMANCE_SECRET: context.client_secret ?? "" };
// Hosts of authorization servers. The scenarios choose their ports, so a person would add them when they are refused.
const hosts = new Set();
// What a document of the client's would be: the suite reads none.
const document = "https://conformance-test.local/client-metadata.json";
let client = {};
// Scenarios in which the server asks a person.
const asks = scenario.startsWith("elicitation-");

function policy() {
  const allowed = [...hosts].map((host) => ({ host, private: true }));
  const oauth = { client_metadata: document, ...client };
  const server = { url, private: true, oauth, network: { allowed_domains: allowed } };
  const secrets = context.client_secret ? { SECRET: { env: "CONFORMANCE_SECRET" } } : {};
  mkdirSync(join(root, ".harness"), { recursive: true });
  const sandbox = asks ? { secrets, services: ["ask_user"] } : { secrets };
  const text = JSON.stringify({ sandbox, mcp: { servers: { s: server } } });
  writeFileSync(join(root, ".harness", "harness.md"), `---\n${text}\n---\n`);
}

function run(...args) {
  const ran = spawnSync(harness, ["-C", root, ...args], { env: environment, encoding: "utf8" });
  console.error(`harness ${args.join(" ")}: ${ran.status}\n${ran.stdout}${ran.stderr}`);
  return ran;
}

// Runs a command at a terminal, as a person who takes what each field of a form offers.
async function runAtTerminal(...args) {
  const quoted = [harness, "-C", root, ...args].map((word) => `'${word.replaceAll("'", "'\\''")}'`).join(" ");
  const child = spawn("script", ["-qefc", quoted, "/dev/null"], { env: environment });
  let shown = "", answered = 0;
  child.stdout.on("data", (data) => {
    shown += data;
    const asked = shown.split("): ").length - 1;
    if (shown.endsWith("): ") && asked > answered) {
      answered = asked;
      child.stdin.write("\n");
    }
  });
  const status = await new Promise((done) => child.on("close", done));
  console.error(`harness ${args.join(" ")}: ${status}\n${shown}`);
  return { status, stdout: shown, stderr: shown };
}

// Logs in as a person does: opens the address that is printed, and lets the authorization server send the browser back.
async function login() {
  let again = 1;
  for (let tries = 0; tries < 5; tries++) {
    const child = spawn(harness, ["-C", root, "mcp", "login", "s"], { env: environment });
    let out = "", err = "";
    let opened;
    child.stderr.on("data", (data) => (err += data));
    child.stdout.on("data", (data) => {
      out += data;
      const address = /^https?:.*$/m.exec(out)?.[0];
      if (address && out.includes("\n") && !opened) opened = fetch(address).then((answer) => answer.text(), () => "");
    });
    const code = await new Promise((done) => child.on("close", done));
    await opened;
    console.error(`harness mcp login s: ${code}\n${out}${err}`);
    if (code === 0) return true;
    const host = /the host `([^`]+)` is not allowed/.exec(err)?.[1];
    const issuer = /the authorization server is `([^`]+)`, and/.exec(err)?.[1];
    // The server may have changed its authorization server meanwhile: a person logs in there too, once.
    if (/does not take the token/.test(err) && again-- > 0) continue;
    if (host && !hosts.has(host)) hosts.add(host);
    else if (issuer && client.issuer !== issuer) client = { ...client, issuer };
    else return false;
    policy();
  }
  return false;
}

// Runs a command, and logs in where the server wants that.
async function logged(...args) {
  for (let tries = 0; ; tries++) {
    const ran = asks && args[0] === "call" ? await runAtTerminal(...args) : run(...args);
    if (tries === 3 || !/wants a login/.test(ran.stderr)) return ran;
    if (!(await login())) return ran;
  }
}

// Arguments that a tool takes.
function argumentsOf(schema) {
  const value = (property) =>
    ({ number: 5, integer: 5, boolean: true, object: {}, array: [] })[property.type] ?? "x";
  const required = (schema.required ?? []).map((name) => [name, value(schema.properties?.[name] ?? {})]);
  return Object.fromEntries(required);
}

if (context.client_id) {
  client = { client_id: context.client_id, issuer: "https://unknown.invalid" };
  if (context.client_secret) client.client_secret = "SECRET";
}
policy();
const locked = await logged("lock");
// Servers that the host refuses, rightly: what the scenario checks has happened by then.
const refusals = {
  initialize: "it has no tools",
  "request-metadata": "it has no tools",
  "json-schema-ref-no-deref": "leaves the schema",
};
const refusal = refusals[scenario];
if (refusal && locked.status !== 0 && locked.stderr.includes(refusal)) {
  rmSync(room, { recursive: true, force: true });
  process.exit(0);
}
let failed = locked.status !== 0;
if (!failed) {
  const tested = await logged("mcp", "test", "s", "--json");
  const tools = JSON.parse(tested.stdout).tools;
  const calls = context.toolCalls ?? tools.map((tool) => ({ name: tool.name, arguments: argumentsOf(tool.inputSchema) }));
  const [listed] = JSON.parse(run("mcp", "list", "--json").stdout);
  for (const call of calls) {
    const name = listed.tools.find((tool) => tool.tool === call.name)?.name;
    if (!name) continue;
    // What is null is left out: the schemas of the tools allow no null.
    const given = Object.fromEntries(Object.entries(call.arguments).filter(([, value]) => value !== null));
    const ran = await logged("call", name, "--args", JSON.stringify(given), "--yes");
    failed ||= ran.status !== 0;
  }
}
rmSync(room, { recursive: true, force: true });
console.error(`${scenario}: ${failed ? "failed" : "done"}`);
process.exit(failed ? 1 : 0);
