// Refreshes a part of a page while the server works on what it shows.
// <div data-refresh="URL"> holds <div data-pending="number">; 0 means that nothing will change.
const PAUSE_MS = 2000;
const MOST_ERRORS = 5;

class LivePart {
  constructor(place) {
    this.place = place;
    this.errors = 0;
    this.timer = 0;
    place.addEventListener("refresh", () => this.plan(0));
    if (this.isPending()) this.plan(PAUSE_MS);
  }

  isPending() {
    const state = this.place.querySelector("[data-pending]");
    return Boolean(state) && state.dataset.pending !== "0";
  }

  plan(delay) {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.refresh(), delay);
  }

  async refresh() {
    if (document.hidden) return this.plan(PAUSE_MS);
    try {
      const answer = await fetch(this.place.dataset.refresh, { redirect: "error" });
      if (!answer.ok) throw new Error(answer.statusText);
      this.show(await answer.text());
      this.errors = 0;
    } catch {
      this.errors += 1;
    }
    if (this.errors >= MOST_ERRORS) return this.giveUp();
    if (this.errors || this.isPending()) this.plan(PAUSE_MS * 2 ** this.errors);
  }

  show(text) {
    const fresh = new DOMParser().parseFromString(text, "text/html").body;
    // A region that has the focus keeps it, and a list that was scrolled its place.
    const focused = this.place.contains(document.activeElement) && document.activeElement;
    const label = focused && focused.getAttribute("aria-label");
    const left = this.place.querySelector(".scroll")?.scrollLeft ?? 0;
    this.place.replaceChildren(...fresh.childNodes);
    const scroll = this.place.querySelector(".scroll");
    if (scroll) scroll.scrollLeft = left;
    if (label) this.place.querySelector(`[aria-label="${CSS.escape(label)}"]`)?.focus();
  }

  giveUp() {
    const note = document.createElement("p");
    const link = document.createElement("a");
    link.href = location.href;
    link.textContent = "Reload the page";
    note.className = "notice warning";
    note.append("The state cannot be read at the moment. ", link, " to try again.");
    this.place.append(note);
  }
}

for (const place of document.querySelectorAll("[data-refresh]")) new LivePart(place);
