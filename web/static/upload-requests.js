// The requests of an upload: one for a small file, one for each part of a large one.
// Parts go straight to the bucket if the page may send there, else through the store.
// Errors that may pass are retried with growing pauses; others are Refused with the store's words.
import { crc32c } from "./crc32c.js";

const SMALL_BYTES = 8 * 1024 * 1024;
const PARTS_AT_ONCE = 3;
const ATTEMPTS = 8;
const MOST_PAUSE_S = 60;
const TOKEN_MS = 60 * 1000;

export class Refused extends Error {
  constructor(message, status = 0) {
    super(message);
    this.status = status;
  }
}

class Passing extends Error {
  constructor(message, status = 0, afterSeconds = 0) {
    super(message);
    this.status = status;
    this.afterSeconds = afterSeconds;
  }
}

function encodeName(name) {
  return name.split("/").map(encodeURIComponent).join("/");
}

function readProblem(answer) {
  try {
    return JSON.parse(answer.responseText).detail || answer.statusText;
  } catch {
    return answer.statusText || `Status ${answer.status}`;
  }
}

function sendOnce(method, url, headers, body, progress) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open(method, url);
    for (const [name, value] of Object.entries(headers)) request.setRequestHeader(name, value);
    request.upload.onprogress = (event) => progress(event.loaded);
    request.onerror = () => reject(new Passing("The connection broke."));
    request.onload = () => {
      const { status } = request;
      if (status >= 200 && status < 300) return resolve(request);
      const told = readProblem(request);
      if (status === 408 || status === 429 || status >= 500) {
        const after = Number(request.getResponseHeader("Retry-After")) || 0;
        return reject(new Passing(told, status, after));
      }
      return reject(new Refused(told, status));
    };
    request.send(body);
  });
}

export class ApiClient {
  constructor(area, tokenUrl, mayGoDirect) {
    this.root = `/v1/area/${area}`;
    this.tokenUrl = tokenUrl;
    this.token = null;
    this.tokenAt = 0;
    this.mayGoDirect = mayGoDirect;
    this.wentDirect = false;
  }

  // The session renews the token: it is asked for again every minute.
  async readToken() {
    if (!this.token || Date.now() - this.tokenAt > TOKEN_MS) {
      const answer = await fetch(this.tokenUrl, { redirect: "manual" }).catch(() => null);
      if (!answer) throw new Passing("The connection broke.");
      if (answer.type === "opaqueredirect") {
        throw new Refused("Your session has ended. Log in in another tab, then try again.");
      }
      if (!answer.ok) throw new Passing(`Status ${answer.status}`);
      this.token = await answer.text();
      this.tokenAt = Date.now();
    }
    return this.token;
  }

  // Sends one request to the API with retries; `waiting(seconds, why)` tells of pauses.
  send(method, path, { waiting, ...what }) {
    return this.retry(waiting, () => this.sendAsVisitor(method, path, what));
  }

  async sendAsVisitor(method, path, { body = null, type = null, progress = () => {} }) {
    const headers = { Authorization: `Bearer ${await this.readToken()}`, Accept: "application/json" };
    if (type) headers["Content-Type"] = type;
    try {
      return await sendOnce(method, this.root + path, headers, body, progress);
    } catch (error) {
      if (error.status !== 401 || this.tokenAt === 0) throw error;
      this.token = null;
      throw new Passing("The token has expired.");
    }
  }

  async retry(waiting, attempt) {
    for (let number = 1; ; number += 1) {
      try {
        const result = await attempt();
        if (number > 1) waiting(0, "");
        return result;
      } catch (error) {
        if (!(error instanceof Passing)) throw error;
        if (number >= ATTEMPTS) throw new Refused(`${error.message} Given up after ${number} tries.`);
        const growing = Math.min(MOST_PAUSE_S, 2 ** (number - 1));
        const pause = Math.max(error.afterSeconds, growing * (0.75 + Math.random() / 2));
        waiting(Math.ceil(pause), error.message);
        await new Promise((resolve) => setTimeout(resolve, pause * 1000));
      }
    }
  }

  upload(file, name, memory, told) {
    return file.size <= SMALL_BYTES
      ? this.putWhole(file, name, told)
      : this.putParts(file, name, memory, told);
  }

  async putWhole(file, name, { progress, waiting }) {
    // Without a type the store would take the browser's guess for a declaration.
    const type = file.type || "application/octet-stream";
    await this.send("PUT", `/files/${encodeName(name)}`, { body: file, type, waiting, progress });
  }

  async putParts(file, name, memory, { progress, waiting }) {
    const path = encodeName(name);
    const upload = await this.begin(file, name, memory, waiting);
    const arrived = new Map(upload.parts.map((part) => [part, this.partSize(upload, part)]));
    const show = () => progress([...arrived.values()].reduce((sum, size) => sum + size, 0));
    show();
    const missing = [];
    for (let part = 1; part <= upload.part_count; part += 1) {
      if (!arrived.has(part)) missing.push(part);
    }
    const worker = async () => {
      while (missing.length) {
        const part = missing.shift();
        const start = (part - 1) * upload.part_size;
        const body = file.slice(start, start + this.partSize(upload, part));
        await this.putPart(path, { upload_id: upload.upload_id, part }, body, {
          waiting,
          progress: (sent) => {
            arrived.set(part, sent);
            show();
          },
        });
        arrived.set(part, body.size);
        show();
      }
    };
    try {
      await Promise.all(Array.from({ length: PARTS_AT_ONCE }, worker));
      const body = JSON.stringify({ upload_id: upload.upload_id });
      await this.send("POST", `/complete/${path}`, { body, type: "application/json", waiting });
    } catch (error) {
      missing.length = 0;
      throw error;
    }
  }

  async putPart(path, which, body, { waiting, progress }) {
    if (this.mayGoDirect) {
      const text = JSON.stringify({ ...which, crc32c: await crc32c(body) });
      if (await this.retry(waiting, () => this.putDirect(path, text, body, progress))) return;
      progress(0);
    }
    const query = new URLSearchParams(which);
    const type = "application/octet-stream";
    await this.send("PUT", `/uploads/${path}?${query}`, { body, type, waiting, progress });
  }

  // Puts a part into the bucket; false if it must go through the store. A bucket that never took
  // one may lack the rule that lets this site in, of which a browser tells nothing.
  async putDirect(path, text, body, progress) {
    if (!this.mayGoDirect) return false;
    const signed = await this.signPart(path, text);
    if (signed.direct === false) this.mayGoDirect = false;
    if (!signed.direct) return false;
    try {
      await sendOnce(signed.method, signed.url, signed.headers, body, progress);
      return (this.wentDirect = true);
    } catch (error) {
      const passes = this.wentDirect || (error instanceof Passing && error.status);
      if (passes) throw new Passing(error.message, error.status, error.afterSeconds);
      return (this.mayGoDirect = false);
    }
  }

  async signPart(path, text) {
    try {
      const request = { body: text, type: "application/json" };
      return JSON.parse((await this.sendAsVisitor("POST", `/parts/${path}`, request)).responseText);
    } catch (error) {
      if (error instanceof Refused) return {};
      throw error;
    }
  }

  partSize(upload, part) {
    return Math.min(upload.part_size, upload.size - (part - 1) * upload.part_size);
  }

  // Continues the upload that this browser began before, if the store still has it.
  async begin(file, name, memory, waiting) {
    const path = `/uploads/${encodeName(name)}`;
    const wanted = { size: file.size, content_type: file.type || "application/octet-stream" };
    const known = memory.uploadOf(name, file);
    const ask = async (body) => {
      const text = JSON.stringify(body);
      const answer = await this.send("POST", path, { body: text, type: "application/json", waiting });
      return JSON.parse(answer.responseText);
    };
    if (known) {
      try {
        return await ask({ ...wanted, upload_id: known });
      } catch (error) {
        if (error.status !== 400 && error.status !== 404) throw error;
        memory.forget(name);
      }
    }
    const upload = await ask(wanted);
    memory.setUpload(name, file, upload.upload_id);
    return upload;
  }
}
