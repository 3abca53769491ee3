// "Try it" shows its outcome below the form, without leaving the page.

const form = document.getElementById("subscription");

document.addEventListener("submit", async (event) => {
  const button = event.submitter;
  if (event.target !== form || !button?.getAttribute("formaction")?.endsWith("/try")) return;
  event.preventDefault();
  const trial = document.getElementById("trial");
  const fields = new FormData(form, button);
  trial.textContent = "Trying the latest bundles…";
  button.setAttribute("aria-busy", "true");
  try {
    const response = await fetch(button.formAction, {
      method: "POST",
      headers: { Accept: "text/html" },
      body: new URLSearchParams(fields),
    });
    const page = new DOMParser().parseFromString(await response.text(), "text/html");
    const fresh = page.getElementById("trial");
    if (!response.ok || !fresh) throw new Error(String(response.status));
    trial.replaceWith(fresh);
    for (const stale of form.parentElement.querySelectorAll(".notice[role=alert]")) {
      if (!fresh.contains(stale)) stale.remove();
    }
    fresh.focus();
  } catch {
    // The server's own page shows the errors at their fields.
    form.action = button.formAction;
    form.submit();
  } finally {
    button.removeAttribute("aria-busy");
  }
});
