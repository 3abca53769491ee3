// Enhancements of all pages, which work without them: copy buttons, confirmation, live regions.

for (const button of document.querySelectorAll("button[data-copy]")) {
  if (!navigator.clipboard) break;
  button.hidden = false;
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(button.dataset.copy);
    const before = button.firstChild.textContent;
    button.firstChild.textContent = "Copied";
    setTimeout(() => (button.firstChild.textContent = before), 1500);
  });
}

// The summary of a form's errors gets the focus.
document.querySelector("[role=alert][tabindex]")?.focus();
