// A client in TypeScript: its types are generated from the description of the interface, and its compiler checks each use.

import createClient from "openapi-fetch";
import type { components, paths } from "./schema.js";

declare const process: { argv: string[] };

type Call = components["schemas"]["Call"];

function check(holds: boolean, what: unknown): asserts holds {
  if (!holds) throw new Error(JSON.stringify(what));
}

const [url, key] = process.argv.slice(2);
check(url !== undefined && key !== undefined, "usage: client URL KEY");
const client = createClient<paths>({ baseUrl: url, headers: { Authorization: `Bearer ${key}` } });

const listed = await client.GET("/v1/tools");
check(listed.data !== undefined, listed.error);
check(listed.data.tools.map((tool) => tool.name).join() === "greet", listed.data);

const called = await client.POST("/v1/tools/{name}/calls", {
  params: { path: { name: "greet" }, header: { "Idempotency-Key": "generated-typescript" } },
  body: { arguments: { name: "Grace" } },
});
check(called.data !== undefined && "outcome" in called.data, called);
const call: Call = called.data;
check(call.outcome === "completed" && call.content === "Hello, Grace", call);

const begun = await client.POST("/v1/runs", { body: { input: "Greet Ada" } });
check(begun.data !== undefined && begun.response.status === 202, begun);
const id = begun.data.id;
const followed = await client.GET("/v1/runs/{id}/events", { params: { path: { id } }, parseAs: "stream" });
const stream = followed.response.body ?? (followed.data as ReadableStream<Uint8Array> | undefined);
check(stream !== undefined, followed);
const text = await new Response(stream).text();
const kinds = text.split("\n").filter((line) => line.startsWith("event: ")).map((line) => line.slice(7));
check(kinds[0] === "began" && kinds[kinds.length - 1] === "end", kinds);
const shown = await client.GET("/v1/runs/{id}", { params: { path: { id } } });
check(shown.data?.state === "completed" && shown.data.kind === "turn", shown);

const missing = await client.GET("/v1/runs/{id}", { params: { path: { id: "none" } } });
check(missing.error !== undefined && missing.data === undefined, missing);
check(missing.error.type === "urn:harness:problem:not_found" && missing.error.status === 404, missing.error);
check(missing.response.headers.get("content-type") === "application/problem+json", missing.error);

// What the description does not have does not compile.
// @ts-expect-error there is no such path
void (() => client.GET("/v1/none"));
// @ts-expect-error a run needs an input
void (() => client.POST("/v1/runs", { body: {} }));

console.log("a generated client in TypeScript: tools, a call, a run with its events, and an error");
