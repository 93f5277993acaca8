// Offers over HTTP what a server offers over standard input and output, for a suite that speaks HTTP only:
//
//     node shim.mjs COMMAND [ARGUMENT...]
//
// It prints the address that clients connect to. A client that begins with `initialize` gets a server process of its
// own, by its session; requests that name their version share one. Only what HTTP adds is done here: streams, status
// codes, and identifiers that differ where clients use the same.

import { spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { createServer } from "node:http";
import { createInterface } from "node:readline";

const [command, ...commandArguments] = process.argv.slice(2);
const SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId";
const MODERN = "2026-07-28";
const META = ["io.modelcontextprotocol/protocolVersion", "io.modelcontextprotocol/clientCapabilities"];

/** A server process, and the requests that it has not answered. */
class Server {
  #next = 1;
  #pending = new Map();

  constructor() {
    this.process = spawn(command, commandArguments, { stdio: ["pipe", "pipe", "inherit"] });
    createInterface({ input: this.process.stdout }).on("line", (line) => this.#receive(JSON.parse(line)));
  }

  send(message) {
    this.process.stdin.write(JSON.stringify(message) + "\n");
  }

  /** Passes a request on. What comes back goes to `reply`. */
  request(message, reply) {
    const id = this.#next++;
    const token = message.params?._meta?.progressToken;
    const own = structuredClone(message);
    own.id = id;
    // Tokens of two clients may be the same as well.
    if (token !== undefined) own.params._meta.progressToken = id;
    this.#pending.set(id, { message, token, reply });
    reply.gone = () => {
      if (this.#pending.delete(id)) this.send({ jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId: id } });
    };
    this.send(own);
  }

  notify(message) {
    const own = structuredClone(message);
    if (message.method === "notifications/cancelled") {
      const found = [...this.#pending].find(([, { message: sent }]) => sent.id === message.params?.requestId);
      if (!found) return;
      own.params.requestId = found[0];
    }
    this.send(own);
  }

  #receive(message) {
    if (message.method === undefined) {
      const pending = this.#pending.get(message.id);
      this.#pending.delete(message.id);
      const meta = message.result?._meta;
      if (pending && meta && SUBSCRIPTION in meta) meta[SUBSCRIPTION] = pending.message.id;
      pending?.reply.end({ ...message, id: pending.message.id }, pending.message);
      return;
    }
    const { params } = message;
    let pending;
    if (message.method === "notifications/progress") {
      pending = this.#pending.get(params.progressToken);
      if (pending) params.progressToken = pending.token;
    } else if (params?._meta && SUBSCRIPTION in params._meta) {
      pending = this.#pending.get(Number(params._meta[SUBSCRIPTION]));
      if (pending) params._meta[SUBSCRIPTION] = pending.message.id;
    } else {
      // Nothing says which request it belongs to: the newest.
      pending = [...this.#pending.values()].at(-1);
    }
    pending?.reply.push(message);
  }
}

/** The answer to one `POST`: JSON if there is one message, else a stream of events. */
class Reply {
  gone = () => {};

  constructor(response, version, headers) {
    this.response = response;
    this.version = version;
    this.headers = headers;
    response.on("close", () => this.gone());
  }

  push(message) {
    if (!this.response.headersSent) this.response.writeHead(200, { ...this.headers, "content-type": "text/event-stream" });
    this.response.write(`event: message\ndata: ${JSON.stringify(message)}\n\n`);
  }

  end(message, request) {
    if (this.response.headersSent) {
      this.push(message);
      this.response.end();
      return;
    }
    this.response.writeHead(status(message, request, this.version), { ...this.headers, "content-type": "application/json" });
    this.response.end(JSON.stringify(message));
  }
}

/** The status of an answer in 2026-07-28; older versions have none. */
function status({ error }, { params }, version) {
  if (!error) return 200;
  if ([-32020, -32021, -32022].includes(error.code)) return 400;
  if (version !== MODERN) return 200;
  if (error.code === -32601) return 404;
  if ([-32700, -32600].includes(error.code)) return 400;
  return error.code === -32602 && !META.every((key) => key in (params?._meta ?? {})) ? 400 : 200;
}

const shared = new Server();
const sessions = new Map();

createServer(async (request, response) => {
  const session = request.headers["mcp-session-id"];
  if (session !== undefined && !sessions.has(session)) return response.writeHead(404).end();
  const server = sessions.get(session) ?? shared;
  if (request.method === "DELETE" && session) {
    server.process.stdin.end();
    sessions.delete(session);
    return response.writeHead(200).end();
  }
  if (request.method !== "POST") return response.writeHead(405, { allow: "POST" }).end();
  let text = "";
  for await (const piece of request.setEncoding("utf8")) text += piece;
  const message = JSON.parse(text);
  if (message.id !== undefined && message.method !== undefined) {
    const version = request.headers["mcp-protocol-version"];
    const named = message.params?._meta?.[META[0]];
    if (named !== undefined && named !== version) {
      const error = { code: -32020, message: "the header and the message name different versions" };
      return new Reply(response, MODERN, {}).end({ jsonrpc: "2.0", id: message.id, error }, message);
    }
    if (message.method !== "initialize" || named !== undefined) return server.request(message, new Reply(response, version, {}));
    const id = randomUUID();
    sessions.set(id, new Server());
    return sessions.get(id).request(message, new Reply(response, version, { "mcp-session-id": id }));
  }
  if (message.method === undefined) server.send(message);
  else server.notify(message);
  response.writeHead(202).end();
}).listen(0, "127.0.0.1", function () {
  console.log(`http://127.0.0.1:${this.address().port}/mcp`);
});

// Servers end with their standard input.
process.on("SIGTERM", () => process.exit(0));
