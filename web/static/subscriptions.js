// "Try it" shows its outcome, or the errors at their fields, without leaving the page.

document.addEventListener("submit", async (event) => {
  const form = event.target;
  const button = event.submitter;
  if (form.id !== "subscription" || !button?.getAttribute("formaction")?.endsWith("/try")) return;
  event.preventDefault();
  const sent = new URLSearchParams(new FormData(form, button));
  document.getElementById("trial").textContent = "Trying the latest bundles…";
  button.setAttribute("aria-busy", "true");
  try {
    const headers = { Accept: "text/html" };
    const response = await fetch(button.formAction, { method: "POST", headers, body: sent });
    const page = new DOMParser().parseFromString(await response.text(), "text/html");
    if (!page.getElementById("subscription")) throw new Error(String(response.status));
    show(page);
  } catch {
    // The server's own page says what is wrong.
    form.action = button.formAction;
    form.submit();
  }
});

function show(page) {
  const secret = document.getElementById("f-hmac_secret_key").value;
  const opened = document.querySelector("#subscription details").open;
  document.getElementById("content").replaceWith(page.getElementById("content"));
  // The server never sends a secret back.
  document.getElementById("f-hmac_secret_key").value = secret;
  document.querySelector("#subscription details").open ||= opened;
  const problem = document.querySelector("#content > .notice.error");
  (problem ?? document.getElementById("trial")).focus();
}
