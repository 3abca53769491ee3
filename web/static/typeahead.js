// Suggests field names while a query is typed: arrow keys choose, Enter or a click takes one.
const MOST = 8;
const LEAST_CHARACTERS = 2;
const input = document.getElementById("q");
const list = document.getElementById("q-options");
let fields;
let chosen = -1;

// Once, when somebody begins to type; without permission there are no suggestions.
async function loadFields() {
  const answer = await fetch(`/v1/search/fields?${new URLSearchParams({ replica: input.dataset.replica, per_page: 500 })}`);
  return answer.ok ? (await answer.json()).fields : [];
}

function lastWord() {
  const typed = input.value.slice(0, input.selectionStart);
  return typed.slice(typed.lastIndexOf(" ") + 1).replace(/^[-(]+/, "");
}

function show(found) {
  list.replaceChildren(...found.map((field, number) => {
    const option = document.createElement("li");
    option.id = `q-option-${number}`;
    option.role = "option";
    option.textContent = field.name;
    option.setAttribute("aria-selected", "false");
    option.addEventListener("mousedown", (event) => {
      event.preventDefault();
      take(field.name);
    });
    return option;
  }));
  chosen = -1;
  list.hidden = found.length === 0;
  input.setAttribute("aria-expanded", String(!list.hidden));
  input.removeAttribute("aria-activedescendant");
}

function choose(number) {
  list.children[chosen]?.setAttribute("aria-selected", "false");
  chosen = (number + list.children.length) % list.children.length;
  list.children[chosen].setAttribute("aria-selected", "true");
  input.setAttribute("aria-activedescendant", list.children[chosen].id);
}

function take(name) {
  const end = input.selectionStart;
  const begin = end - lastWord().length;
  input.setRangeText(`${name}:`, begin, end, "end");
  show([]);
}

input.addEventListener("input", async () => {
  const word = lastWord().toLowerCase();
  if (word.length < LEAST_CHARACTERS || /[:"{*]/.test(word)) return show([]);
  fields ??= loadFields();
  const known = await fields;
  if (word !== lastWord().toLowerCase()) return;
  const found = known.filter((field) => field.name.toLowerCase().includes(word));
  found.sort((one, other) => other.documents - one.documents);
  show(found.slice(0, MOST));
});

input.addEventListener("keydown", (event) => {
  if (list.hidden) return;
  if (event.key === "ArrowDown") choose(chosen + 1);
  else if (event.key === "ArrowUp") choose(chosen < 0 ? list.children.length - 1 : chosen - 1);
  else if (event.key === "Enter" && chosen >= 0) take(list.children[chosen].textContent);
  else if (event.key === "Escape") show([]);
  else return;
  event.preventDefault();
});

input.addEventListener("blur", () => show([]));
input.role = "combobox";
input.setAttribute("aria-autocomplete", "list");
input.setAttribute("aria-controls", list.id);
input.setAttribute("aria-expanded", "false");
