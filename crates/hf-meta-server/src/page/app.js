// Requests the page again when the user has chosen a model or an option, and replaces the result.

const form = document.getElementById("query");
const status = document.getElementById("status");
// Time in ms without input before a request is sent.
const INPUT_DELAY = 400;
// Time in ms between two requests while the result is pending.
const POLL_INTERVAL = 2000;

// Fields that name the model. Each lookup costs requests to the Hub, so they are complete before it starts.
const MODEL = ["repo", "revision", "path"];

let timer;
let request = new AbortController();
// The query that was requested last.
let requested = location.search;
// The style that was chosen last. A result without badges has no buttons for it.
let style = new URLSearchParams(location.search).get("style") ?? "flat";

/** Returns the URL of the page for the form, without empty and default values. */
function pageUrl() {
  const query = new URLSearchParams();
  const fields = new FormData(form);
  fields.set("style", style);
  for (const [name, value] of fields) {
    const field = form.elements[name];
    const isFirst = field instanceof HTMLSelectElement && field.selectedIndex === 0;
    const text = value.trim();
    if (text && !isFirst && !(name === "style" && text === "flat")) query.set(name, text);
  }
  return `?${query}`;
}

/** Returns the part of a query that names the model. */
function model(query) {
  const parameters = new URLSearchParams(query);
  return MODEL.map((name) => parameters.get(name) ?? "").join("\n");
}

/** Requests the page for the form, and adds an entry to the history if the model is another one. */
async function update() {
  const url = pageUrl();
  const [isEmpty, isOther] = [!form.elements.repo.value.trim(), model(url) !== model(location.search)];
  if (isEmpty || !(await show(url))) return;
  if (isOther) history.pushState(null, "", url);
  else history.replaceState(null, "", url);
}

/** Requests a page and shows its result. Returns whether that has succeeded. */
async function show(url) {
  clearTimeout(timer);
  request.abort();
  const { signal } = (request = new AbortController());
  requested = url;
  const result = document.getElementById("result");
  result.setAttribute("aria-busy", "true");
  try {
    const response = await fetch(url, { signal });
    const page = new DOMParser().parseFromString(await response.text(), "text/html");
    if (signal.aborted) return false;
    replace(page.getElementById("result"));
    document.title = page.title;
    return page;
  } catch (error) {
    if (signal.aborted) return false;
    result.setAttribute("aria-busy", "false");
    status.textContent = "The server could not be reached.";
    return false;
  }
}

/** Replaces the result and restores the focus. */
function replace(result) {
  const focused = document.activeElement?.id;
  document.getElementById("result").replaceWith(document.adoptNode(result));
  if (focused && document.activeElement?.id !== focused) document.getElementById(focused)?.focus();
  // The user may have chosen another style in the meantime.
  for (const button of result.querySelectorAll("[name=style]")) button.checked = button.value === style;
  prepare(result);
  announce(result);
}

/** Adapts the snippets to the URL of the browser, and activates the copy buttons. */
function prepare(result) {
  const [known, actual] = baseUrls();
  for (const field of result.querySelectorAll(".field :is(input, textarea)")) {
    field.value = field.value
      .replaceAll(known, actual)
      .replaceAll(encodeURIComponent(known), encodeURIComponent(actual));
    field.addEventListener("focus", () => field.select());
  }
  for (const button of result.querySelectorAll("[data-copies]")) {
    button.hidden = false;
    button.addEventListener("click", () => copy(button));
  }
  if (result.querySelector("[data-pending]")) timer = setTimeout(() => show(requested), POLL_INTERVAL);
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

/** Announces the message of a failure, or the number of parameters, to screen readers. */
function announce(result) {
  const texts = [...result.querySelectorAll(".notice p, .counts strong")];
  status.textContent = texts.map((text) => text.textContent).join(" ");
}

form.addEventListener("input", ({ target }) => {
  // A revision and a path belong to one repository.
  if (target.name === "repo") form.elements.revision.value = form.elements.path.value = "";
  clearTimeout(timer);
  // An option costs no lookup, unless the model is not complete.
  const isKnown = model(pageUrl()) === model(requested);
  if (!MODEL.includes(target.name) && isKnown) timer = setTimeout(update, INPUT_DELAY);
});
// The style buttons are outside of the form element but belong to the form.
document.addEventListener("change", ({ target }) => {
  if (target.name === "style") style = target.value;
  const isNewModel = MODEL.includes(target.name) && model(pageUrl()) !== model(requested);
  if (target.name === "style" || isNewModel) update();
});
form.addEventListener("submit", (event) => {
  event.preventDefault();
  if (pageUrl() !== requested) update();
});
window.addEventListener("popstate", async () => {
  style = new URLSearchParams(location.search).get("style") ?? "flat";
  const page = await show(location.href);
  // The fields are those of the earlier model.
  if (page) form.replaceChildren(...document.adoptNode(page.getElementById("query")).childNodes);
  requested = location.search;
});
prepare(document.getElementById("result"));
