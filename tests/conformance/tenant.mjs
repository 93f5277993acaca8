// A tenant of `harness serve` with a project, for clients that show no key: a proxy on the loopback interface shows it.
//
//     node tenant.mjs HARNESS PROJECT DATA
//
// HARNESS is the binary, PROJECT the folder that is uploaded, DATA the folder of the server. The first line of standard
// output is what clients connect to.

import { spawn, execFileSync } from "node:child_process";
import { cpSync, existsSync, mkdirSync } from "node:fs";
import http from "node:http";
import { createInterface } from "node:readline";

const [harness, project, data] = process.argv.slice(2);
const server = spawn(harness, ["serve", "--data", data, "--demo", "--listen", "127.0.0.1:0"], {
  stdio: ["ignore", "pipe", "pipe"],
});
const end = (code) => {
  server.kill("SIGKILL");
  process.exit(code);
};
process.on("SIGTERM", () => end(0));
server.on("exit", () => end(1));

/** The first line of a stream that this finds something in. */
async function first(stream, pattern) {
  for await (const line of createInterface({ input: stream })) {
    const found = pattern.exec(line);
    if (found) {
      stream.resume();
      return found[1];
    }
  }
  throw new Error(`no line of the server is like ${pattern}`);
}

const [url, key] = await Promise.all([first(server.stdout, /^(http\S+)/), first(server.stderr, /tenant acme: (\S+)/)]);
const bearer = `Bearer ${key}`;
const target = new URL(url);

const archive = execFileSync("tar", ["-C", project, "-cf", "-", ".harness"], { maxBuffer: 1 << 26 });
const uploaded = await fetch(new URL("/v1/project", url), { method: "PUT", headers: { authorization: bearer }, body: archive });
if (!uploaded.ok) throw new Error(`the project is refused: ${await uploaded.text()}`);
// Its files are the tenant's. Those that are no text have no way through the interface.
mkdirSync(`${data}/tenants/acme/workspace`, { recursive: true });
if (existsSync(`${project}/resources`)) {
  cpSync(`${project}/resources`, `${data}/tenants/acme/workspace/resources`, { recursive: true });
}

const proxy = http.createServer((asked, answer) => {
  const { port } = proxy.address();
  // A name of the proxy is one of the server. Any other one is sent on as it is.
  const own = (text) => text?.replace(new RegExp(`^(https?://)?(127\\.0\\.0\\.1|localhost):${port}$`), `$1${target.host}`);
  const headers = { ...asked.headers, authorization: bearer };
  for (const name of ["host", "origin"]) if (headers[name]) headers[name] = own(headers[name]);
  const { hostname, port: there } = target;
  const sent = http.request({ hostname, port: there, path: asked.url, method: asked.method, headers }, (came) => {
    answer.writeHead(came.statusCode, came.headers);
    came.pipe(answer);
    came.on("error", () => answer.destroy());
  });
  sent.on("error", () => answer.destroy());
  // What a client ends is ended at the server.
  answer.on("close", () => sent.destroy());
  asked.pipe(sent);
});
proxy.listen(0, "127.0.0.1", () => console.log(`http://127.0.0.1:${proxy.address().port}/mcp`));
