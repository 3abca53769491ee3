// The tour of tests/real/test_generated_clients.py by the client that openapi-typescript generates.
import createClient from "openapi-fetch";
import type { components, paths } from "./store.js";

declare const process: { argv: string[] };
type Uuid = components["schemas"]["Uuid"];
type Version = components["schemas"]["Version"];

const [url, token] = process.argv.slice(2) as [string, string];
const store = createClient<paths>({
  baseUrl: `${url}/v1`,
  headers: { Authorization: `Bearer ${token}` },
});
const replica: components["schemas"]["Replica"] = "aws";
const uuid: Uuid = crypto.randomUUID();
const version: Version = "2026-01-31T235959.000000Z";

function taken<T>(answer: { data?: T; error?: components["schemas"]["Problem"] }): T {
  if (answer.data === undefined) throw new Error(JSON.stringify(answer.error));
  return answer.data;
}

taken(await store.POST("/area/{uuid}", { params: { path: { uuid } } }));
const staged = taken(
  await store.PUT("/area/{uuid}/files/{filename}", {
    params: { path: { uuid, filename: "sample.json" } },
    body: JSON.stringify({ organism: "Danio rerio" }),
    bodySerializer: (body) => body,
    headers: { "Content-Type": "application/octet-stream" },
  }),
);
taken(
  await store.PUT("/files/{uuid}", {
    params: { path: { uuid }, query: { version } },
    body: { source_url: staged.url, creator_uid: 7 },
    headers: { Prefer: "wait=30" },
  }),
);
taken(
  await store.PUT("/bundles/{uuid}", {
    params: { path: { uuid }, query: { version, replica } },
    body: { creator_uid: 7, files: [{ uuid, version, name: "sample.json", indexed: true }] },
  }),
);
const { bundle } = taken(
  await store.GET("/bundles/{uuid}", { params: { path: { uuid }, query: { version, replica } } }),
);
const refused = await store.GET("/bundles/{uuid}", {
  params: { path: { uuid: "00000000-0000-0000-0000-000000000000" }, query: { replica } },
});
const subscription = taken(
  await store.PUT("/subscriptions", {
    params: { query: { replica } },
    body: { callback_url: "http://127.0.0.1:9/hook", jmespath_query: "event_type == 'CREATE'" },
  }),
);
taken(
  await store.DELETE("/subscriptions/{uuid}", {
    params: { path: { uuid: subscription.uuid }, query: { replica } },
  }),
);
console.log(
  JSON.stringify({
    uuid: bundle.uuid,
    version: bundle.version,
    names: bundle.files.map((file) => file.name),
    refused: refused.error?.code,
    subscribed: subscription.jmespath_query,
  }),
);
