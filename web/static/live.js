// Renews a part of a page while the server works on what it shows: by the page's stream of
// server-sent events, else by asking for the page again from time to time.
// <div id="…" data-live="URL" data-pending>; without data-pending nothing will change.
const PAUSE_MS = 2000;
const SILENCE_MS = 10000;
const MOST_ERRORS = 5;

class LivePart {
  constructor(place) {
    this.place = place;
    this.source = null;
    this.timer = 0;
    this.errors = 0;
    this.deferred = 0;
    this.shown = place.outerHTML;
    // Another script has changed something: look again, even if nothing was pending.
    place.addEventListener("refresh", () => this.source || this.start());
    // A page that nobody sees takes no stream from one that is looked at.
    document.addEventListener("visibilitychange", () => this.startIfPending());
    this.startIfPending();
  }

  isPending() {
    return this.place.hasAttribute("data-pending");
  }

  startIfPending() {
    this.stop();
    if (this.isPending() && !document.hidden) this.start();
  }

  stop() {
    clearTimeout(this.timer);
    this.source?.close();
    this.source = null;
  }

  start() {
    this.stop();
    if (!window.EventSource) return this.poll();
    this.source = new EventSource(this.place.dataset.live);
    this.source.onmessage = (message) => {
      clearTimeout(this.timer);
      this.show(JSON.parse(message.data).part);
    };
    // A stream that ends is opened again by the browser, one that is refused is not.
    this.source.onerror = () =>
      this.source.readyState === EventSource.CLOSED ? this.poll() : this.expectMessage();
    this.expectMessage();
  }

  expectMessage() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.poll(), SILENCE_MS);
  }

  async poll() {
    this.stop();
    const url = this.place.dataset.live;
    const options = { headers: { Accept: "text/html" }, redirect: "manual" };
    try {
      const answer = await fetch(url, options);
      // The session has ended, or the right to see this: nothing will change that.
      if (answer.type === "opaqueredirect" || [401, 403, 404].includes(answer.status)) {
        return this.giveUp();
      }
      if (!answer.ok) throw new Error(answer.statusText);
      this.show(await answer.text());
      this.errors = 0;
    } catch {
      this.errors += 1;
    }
    if (this.errors >= MOST_ERRORS) return this.giveUp();
    if (!this.source && (this.errors || this.isPending()) && !document.hidden) {
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.poll(), PAUSE_MS * 2 ** this.errors);
    }
  }

  // Takes the part, or the page that has it.
  show(text) {
    clearTimeout(this.deferred);
    const selection = document.getSelection();
    if (!selection.isCollapsed && this.place.contains(selection.anchorNode)) {
      this.deferred = setTimeout(() => this.show(text), PAUSE_MS);
      return;
    }
    const parsed = new DOMParser().parseFromString(text, "text/html");
    const fresh = parsed.getElementById(this.place.id);
    if (!fresh || fresh.outerHTML === this.shown) return;
    this.shown = fresh.outerHTML;
    this.place.toggleAttribute("data-pending", fresh.hasAttribute("data-pending"));
    const before = this.rememberReader();
    this.place.replaceChildren(...fresh.childNodes);
    this.restoreReader(before);
    if (!this.isPending()) this.stop();
  }

  // What has the focus, what is folded, and where a wide table was scrolled to.
  rememberReader() {
    const focused = document.activeElement;
    return {
      focus: this.place.contains(focused) && nameOf(focused),
      folds: new Map([...this.place.querySelectorAll("details")].map((one) => [nameOf(one), one.open])),
      left: this.place.querySelector(".scroll")?.scrollLeft ?? 0,
    };
  }

  restoreReader({ focus, folds, left }) {
    for (const one of this.place.querySelectorAll("details")) {
      one.open = folds.get(nameOf(one)) ?? one.open;
    }
    const scroll = this.place.querySelector(".scroll");
    if (scroll) scroll.scrollLeft = left;
    if (!focus) return;
    const candidates = [...this.place.querySelectorAll("a, button, summary, [tabindex]")];
    candidates.find((one) => nameOf(one) === focus)?.focus({ preventScroll: true });
  }

  giveUp() {
    this.stop();
    const note = document.createElement("p");
    const link = document.createElement("a");
    link.href = location.href;
    link.textContent = "Reload the page";
    note.className = "notice warning";
    note.append("The state cannot be read at the moment. ", link, " to try again.");
    this.place.append(note);
    this.place.removeAttribute("data-pending");
  }
}

// The same element in the part before and after a change.
function nameOf(element) {
  const summary = element.querySelector(":scope > summary") ?? element;
  const name = element.getAttribute("href") ?? element.getAttribute("aria-label");
  return `${element.tagName} ${name ?? summary.textContent}`;
}

for (const place of document.querySelectorAll("[data-live]")) new LivePart(place);
