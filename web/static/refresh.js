// Elements with `data-refresh` (seconds) are replaced by what the server shows now.

function refresh(element) {
  setTimeout(async () => {
    let current = element;
    try {
      const isBusy = document.hidden || element.contains(document.activeElement);
      if (!isBusy && String(document.getSelection()) === "") current = await replace(element);
    } finally {
      if (current?.dataset.refresh) refresh(current);
    }
  }, Number(element.dataset.refresh) * 1000);
}

async function replace(element) {
  const response = await fetch(location.href, { headers: { Accept: "text/html" } });
  if (!response.ok || response.redirected) return element;
  const page = new DOMParser().parseFromString(await response.text(), "text/html");
  const fresh = page.getElementById(element.id);
  if (!fresh) return element;
  const opened = [...element.querySelectorAll("details")].map((one) => one.open);
  const before = element.querySelectorAll("details").length;
  const details = fresh.querySelectorAll("details");
  if (details.length === before) details.forEach((one, at) => (one.open = opened[at]));
  element.replaceWith(fresh);
  return fresh;
}

for (const element of document.querySelectorAll("[data-refresh][id]")) refresh(element);
