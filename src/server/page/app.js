// Requests the page again while the user types, and replaces the result.

const form = document.getElementById("query");
const status = document.getElementById("status");
// Time in ms without input before a request is sent.
const INPUT_DELAY = 400;
// Time in ms between two requests while the result is pending.
const POLL_INTERVAL = 2000;

let timer;
let request = new AbortController();

/** Returns the URL of the page for the form, without empty and default values. */
function pageUrl() {
  const query = new URLSearchParams();
  for (const [name, value] of new FormData(form)) {
    const field = form.elements[name];
    const isFirst = field instanceof HTMLSelectElement && field.selectedIndex === 0;
    const text = value.trim();
    if (text && !isFirst && !(name === "style" && text === "flat")) query.set(name, text);
  }
  return `?${query}`;
}

async function update() {
  clearTimeout(timer);
  request.abort();
  if (!form.elements.repo.value.trim()) return;
  const { signal } = (request = new AbortController());
  const url = pageUrl();
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

/** Replaces the result and restores the focus and the open tables. */
function replace(result) {
  const focused = document.activeElement?.id;
  const open = [...document.querySelectorAll("#result details[open]")].map((details) => details.id);
  document.getElementById("result").replaceWith(document.adoptNode(result));
  for (const details of result.querySelectorAll("details")) details.open = open.includes(details.id);
  if (focused && document.activeElement?.id !== focused) document.getElementById(focused)?.focus();
  prepare(result);
  announce(result);
}

/** Adapts the snippets to the URL of the browser, and activates the copy buttons. */
function prepare(result) {
  const [known, actual] = baseUrls();
  for (const field of result.querySelectorAll(".field input")) {
    field.value = field.value
      .replaceAll(known, actual)
      .replaceAll(encodeURIComponent(known), encodeURIComponent(actual));
    field.addEventListener("focus", () => field.select());
  }
  for (const button of result.querySelectorAll("[data-copies]")) {
    button.hidden = false;
    button.addEventListener("click", () => copy(button));
  }
  if (result.querySelector("[data-pending]")) timer = setTimeout(update, POLL_INTERVAL);
}

/** Returns the base URL known to the server and the actual one. Behind a proxy the scheme can differ. */
function baseUrls() {
  const known = document.body.dataset.base;
  const actual = new URL("./", location.href);
  const isSame = URL.canParse(known) && new URL(known).host === actual.host;
  return [known, isSame ? actual.href : known];
}

async function copy(button) {
  const field = document.getElementById(button.dataset.copies);
  field.select();
  try {
    await navigator.clipboard.writeText(field.value);
  } catch {
    // Browsers disable the clipboard on plain HTTP. The selected text can be copied by hand.
    status.textContent = "The text is selected. Copy it with the keyboard.";
    return;
  }
  const label = button.firstChild;
  label.textContent = "Copied";
  status.textContent = "Copied";
  setTimeout(() => (label.textContent = "Copy"), 1500);
}

function announce(result) {
  const tile = result.querySelector(".tiles div");
  const notice = result.querySelector(".notice");
  const [name, value] = tile?.querySelectorAll("dt, strong") ?? [];
  status.textContent = notice?.textContent ?? (tile ? `${name.textContent}: ${value.textContent}` : "");
}

form.addEventListener("input", ({ target }) => {
  // A revision and a path belong to one repository.
  if (target.name === "repo") form.elements.revision.value = form.elements.path.value = "";
  clearTimeout(timer);
  timer = setTimeout(update, INPUT_DELAY);
});
// The style buttons are outside of the form element but belong to the form.
document.addEventListener("change", (event) => {
  if (event.target.name === "style") update();
});
form.addEventListener("submit", (event) => {
  event.preventDefault();
  update();
});
prepare(document.getElementById("result"));
