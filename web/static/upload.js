// Uploads files and folders into an area: in parts, resumable, with retries and progress.
// Its requests are those of the API, with the visitor's own token; parts may go to the bucket.
import { ApiClient, Refused } from "./upload-requests.js";
import { Memory } from "./upload-memory.js";

const FILES_AT_ONCE = 3;
const form = document.getElementById("upload");
const byId = (id) => document.getElementById(id);
const area = form.dataset.area;
const maxBytes = Number(form.dataset.maxBytes);
const client = new ApiClient(area, form.dataset.token, "direct" in form.dataset);
const memory = new Memory(area);

const queue = [];
const failed = [];
const active = new Set();
const totals = { files: 0, done: 0, skipped: 0, bytes: 0, sent: 0 };

function formatBytes(size) {
  const units = ["bytes", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (size >= 999.5 && unit < units.length - 1) {
    size /= 1000;
    unit += 1;
  }
  return `${unit ? size.toPrecision(3) : size} ${units[unit]}`;
}

function showTotals() {
  byId("progress").hidden = false;
  const parts = [`${totals.done} of ${totals.files} files uploaded`];
  parts.push(`${formatBytes(totals.sent)} of ${formatBytes(totals.bytes)}`);
  if (totals.skipped) parts.push(`${totals.skipped} were there already`);
  if (failed.length) parts.push(`${failed.length} failed`);
  const text = parts.join(", ") + ".";
  const status = byId("upload-status");
  if (status.textContent !== text) status.textContent = text;
  const bar = byId("upload-total");
  bar.max = Math.max(1, totals.bytes);
  bar.value = totals.bytes ? totals.sent : Number(totals.done === totals.files);
  byId("upload-retry").hidden = failed.length === 0;
}

// The row of a file that is being sent, or that failed.
function addRow(task) {
  const row = document.createElement("li");
  const name = document.createElement("bdi");
  const bar = document.createElement("progress");
  const note = document.createElement("small");
  name.textContent = task.name;
  bar.max = Math.max(1, task.file.size);
  bar.value = 0;
  bar.setAttribute("aria-label", task.name);
  row.append(name, bar, note);
  byId("uploads").append(row);
  task.row = { row, bar, note };
}

function showProgress(task, sent) {
  totals.sent += sent - task.sent;
  task.sent = sent;
  task.row.bar.value = sent;
  showTotals();
}

function showNote(task, text, isError = false) {
  task.row.note.textContent = text;
  task.row.note.className = isError ? "message" : "";
}

async function send(task) {
  active.add(task);
  addRow(task);
  try {
    if (task.file.size > maxBytes) throw new Refused(`It has more than ${formatBytes(maxBytes)}.`);
    await client.upload(task.file, task.name, memory, {
      progress: (sent) => showProgress(task, sent),
      waiting: (seconds, why) => showNote(task, seconds ? `${why} Next try in ${seconds} s.` : ""),
    });
    showProgress(task, task.file.size);
    memory.setDone(task.name, task.file);
    totals.done += 1;
    task.row.row.remove();
  } catch (error) {
    showProgress(task, 0);
    showNote(task, error.message || String(error), true);
    failed.push(task);
  }
  active.delete(task);
  showTotals();
  pump();
}

let refreshAt = 0;
function refreshFiles() {
  // Not for each of thousands of files.
  if (active.size + queue.length && Date.now() < refreshAt) return;
  refreshAt = Date.now() + 3000;
  byId("files").dispatchEvent(new Event("refresh"));
}

function pump() {
  while (active.size < FILES_AT_ONCE && queue.length) send(queue.shift());
  refreshFiles();
}

function add(files) {
  for (const { file, name } of files) {
    if (!byId("f-again").checked && memory.isDone(name, file)) {
      totals.skipped += 1;
      continue;
    }
    totals.files += 1;
    totals.bytes += file.size;
    queue.push({ file, name: name.normalize("NFC"), sent: 0 });
  }
  showTotals();
  pump();
}

// Calls `add` for each folder as it is read: a dropped folder may hold many thousands of files.
async function readEntry(entry) {
  if (entry.isFile) {
    const file = await new Promise((resolve, reject) => entry.file(resolve, reject));
    return [{ file, name: entry.fullPath.replace(/^\/+/, "") }];
  }
  const reader = entry.createReader();
  const files = [];
  for (;;) {
    const some = await new Promise((resolve, reject) => reader.readEntries(resolve, reject));
    if (!some.length) return files;
    for (const one of some) files.push(...(await readEntry(one)));
  }
}

async function drop(event) {
  event.preventDefault();
  byId("drop").classList.remove("over");
  // The items are gone after the first pause.
  const items = [...event.dataTransfer.items].filter((item) => item.kind === "file");
  const entries = items.map((item) => item.webkitGetAsEntry?.() ?? item.getAsFile());
  for (const entry of entries) {
    if (entry instanceof File) add([{ file: entry, name: entry.name }]);
    else if (entry) await readEntry(entry).then(add, (error) => reportUnreadable(entry, error));
  }
}

function reportUnreadable(entry, error) {
  const task = { file: { size: 0 }, name: entry.fullPath.replace(/^\/+/, ""), sent: 0 };
  addRow(task);
  showNote(task, `It cannot be read: ${error.message}`, true);
  showTotals();
}

function takeChosen() {
  for (const input of form.querySelectorAll("input[type=file]")) {
    add([...input.files].map((file) => ({ file, name: file.webkitRelativePath || file.name })));
    input.value = "";
  }
}

byId("drop-hint").hidden = byId("again-label").hidden = false;
byId("drop").addEventListener("drop", drop);
byId("drop").addEventListener("dragover", (event) => {
  event.preventDefault();
  byId("drop").classList.add("over");
});
byId("drop").addEventListener("dragleave", () => byId("drop").classList.remove("over"));
form.addEventListener("submit", (event) => {
  event.preventDefault();
  takeChosen();
});
byId("upload-retry").addEventListener("click", () => {
  for (const task of failed.splice(0)) {
    task.row.row.remove();
    queue.push(task);
  }
  pump();
});
window.addEventListener("beforeunload", (event) => {
  if (active.size || queue.length) event.preventDefault();
});
