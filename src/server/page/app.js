// Asks for the same page again while the reader types, and puts its result in the place of the old one.

const form = document.getElementById("ask");
const status = document.getElementById("status");
const PAUSE = 400;
const PENDING = 2000;

let timer;
let request = new AbortController();

/** The address of the page for what stands in the form, without what is empty or as it was. */
function address() {
  const query = new URLSearchParams();
  for (const [name, value] of new FormData(form)) {
    const field = form.elements[name];
    const isFirst = field instanceof HTMLSelectElement && field.selectedIndex === 0;
    const text = value.trim();
    if (text && !isFirst && !(name === "style" && text === "flat")) query.set(name, text);
  }
  return `?${query}`;
}

async function show() {
  clearTimeout(timer);
  request.abort();
  if (!form.elements.repo.value.trim()) return;
  const { signal } = (request = new AbortController());
  const url = address();
  const result = document.getElementById("result");
  result.setAttribute("aria-busy", "true");
  try {
    const response = await fetch(url, { signal });
    const page = new DOMParser().parseFromString(await response.text(), "text/html");
    replace(page.getElementById("result"));
    document.title = page.title;
    history.replaceState(null, "", url);
  } catch (error) {
    if (signal.aborted) return;
    result.setAttribute("aria-busy", "false");
    status.textContent = "The server could not be reached.";
  }
}

/** Puts a result in the place of the one that is shown, and the focus where it was. */
function replace(result) {
  const focused = document.activeElement?.id;
  const open = [...document.querySelectorAll("#result details[open]")].map((details) => details.id);
  document.getElementById("result").replaceWith(document.adoptNode(result));
  for (const details of result.querySelectorAll("details")) details.open = open.includes(details.id);
  if (focused && document.activeElement?.id !== focused) document.getElementById(focused)?.focus();
  prepare(result);
  announce(result);
}

/** Makes the texts to paste right for the address that the reader sees, and their buttons work. */
function prepare(result) {
  const [known, seen] = addresses();
  for (const field of result.querySelectorAll(".field input")) {
    field.value = field.value
      .replaceAll(known, seen)
      .replaceAll(encodeURIComponent(known), encodeURIComponent(seen));
    field.addEventListener("focus", () => field.select());
  }
  for (const button of result.querySelectorAll("[data-copies]")) {
    button.hidden = false;
    button.addEventListener("click", () => copy(button));
  }
  if (result.querySelector("[data-pending]")) timer = setTimeout(show, PENDING);
}

/** What the server takes for its address, and what it is: behind a proxy it may not know its scheme. */
function addresses() {
  const known = document.body.dataset.address;
  const seen = new URL("./", location.href);
  const isSame = URL.canParse(known) && new URL(known).host === seen.host;
  return [known, isSame ? seen.href : known];
}

async function copy(button) {
  const field = document.getElementById(button.dataset.copies);
  field.select();
  try {
    await navigator.clipboard.writeText(field.value);
  } catch {
    // Where there is no clipboard, as on plain HTTP, the text is selected for the reader to copy.
    status.textContent = "Selected; copy it with the keyboard.";
    return;
  }
  const label = button.firstChild;
  label.textContent = "Copied";
  status.textContent = "Copied";
  setTimeout(() => (label.textContent = "Copy"), 1500);
}

function announce(result) {
  const figure = result.querySelector(".tiles div");
  const notice = result.querySelector(".notice");
  const [name, value] = figure?.querySelectorAll("dt, strong") ?? [];
  status.textContent = notice?.textContent ?? (figure ? `${name.textContent}: ${value.textContent}` : "");
}

form.addEventListener("input", ({ target }) => {
  // Revisions and paths are those of one repository.
  if (target.name === "repo") form.elements.revision.value = form.elements.path.value = "";
  clearTimeout(timer);
  timer = setTimeout(show, PAUSE);
});
// The choice of a style is outside of the form, and belongs to it.
document.addEventListener("change", (event) => {
  if (event.target.name === "style") show();
});
form.addEventListener("submit", (event) => {
  event.preventDefault();
  show();
});
prepare(document.getElementById("result"));
