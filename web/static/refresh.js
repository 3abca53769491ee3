// Elements with `data-refresh` (seconds) are replaced by what the server shows now.

const MAX_DELAY_S = 60;

function refresh(element, delayS) {
  setTimeout(async () => {
    const isBusy = document.hidden || element.contains(document.activeElement);
    if (isBusy || String(document.getSelection()) !== "") return refresh(element, delayS);
    let fresh = null;
    try {
      fresh = await fetchElement(element.id);
    } catch {
      // The server is away, or wants a login: ask less often.
    }
    if (!fresh) return refresh(element, Math.min(delayS * 2, MAX_DELAY_S));
    keepOpened(element, fresh);
    element.replaceWith(fresh);
    if (fresh.dataset.refresh) refresh(fresh, Number(fresh.dataset.refresh));
  }, delayS * 1000);
}

async function fetchElement(id) {
  const response = await fetch(location.href, { headers: { Accept: "text/html" } });
  if (!response.ok || response.redirected) return null;
  const page = new DOMParser().parseFromString(await response.text(), "text/html");
  return page.getElementById(id);
}

function keepOpened(element, fresh) {
  const before = element.querySelectorAll("details");
  const after = fresh.querySelectorAll("details");
  if (before.length === after.length) after.forEach((one, at) => (one.open = before[at].open));
}

for (const element of document.querySelectorAll("[data-refresh][id]")) {
  refresh(element, Number(element.dataset.refresh));
}
