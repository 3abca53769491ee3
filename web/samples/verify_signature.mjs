// Verify deliveries of the store; header names are lower-case, `body` is a Buffer with the raw
// bytes, `target` is the path and query.
import { createHash, createHmac, timingSafeEqual } from "node:crypto";

const TOLERANCE_S = 300;

const sign = (secret, ...texts) => {
  const hmac = createHmac("sha256", secret);
  for (const text of texts) hmac.update(text);
  return hmac.digest("base64");
};

const isEqual = (one, other) =>
  one.length === other.length && timingSafeEqual(Buffer.from(one), Buffer.from(other));

// Whether `webhook-signature` is by one of the secrets, and recent.
export function verifyWebhook(headers, body, secrets) {
  const sent = headers["webhook-timestamp"];
  if (!(Math.abs(Date.now() / 1000 - Number(sent)) <= TOLERANCE_S)) return false;
  const head = `${headers["webhook-id"]}.${sent}.`;
  const given = headers["webhook-signature"].split(" ").map((one) => one.replace(/^v1,/, ""));
  return given.some((one) => secrets.some((secret) => isEqual(one, sign(secret, head, body))));
}

// Whether `authorization` signs the method, target, host, date and body.
export function verifyHttpSignature(headers, body, secret, method, target) {
  const digest = "SHA-256=" + createHash("sha256").update(body).digest("base64");
  const text =
    `(request-target): ${method.toLowerCase()} ${target}\nhost: ${headers.host}\n` +
    `date: ${headers.date}\ndigest: ${digest}`;
  const given = /signature="([^"]*)"/.exec(headers.authorization);
  return digest === headers.digest && given !== null && isEqual(given[1], sign(secret, text));
}
