// Elements of the page. Texts of files become text nodes only.
import { HfMetaError } from "../js/index.js";

export type Content = Node | string | false | undefined | Content[];
const SVG = "http://www.w3.org/2000/svg";

/** Creates an element. */
export function h(tag: string, attributes: Record<string, string>, ...content: Content[]): Element {
  const isDrawn = ["svg", "path", "text"].includes(tag);
  const element = isDrawn ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...(content.flat(9) as Content[]).filter((part) => part || part === "") as (Node | string)[]);
  return element;
}

export const count = (value: number) => value.toLocaleString("en");
function short(value: number, units: string[], digits = 3): string {
  let unit = 0;
  while (value >= 999.5 && unit < units.length - 1) [value, unit] = [value / 1000, unit + 1];
  return `${Number(value.toPrecision(digits))}${units[unit]}`;
}
export const parameters = (value: number) => short(value, ["", "K", "M", "B", "T"]);
export const bytes = (value: number) => short(value, [" B", " kB", " MB", " GB", " TB"]);

export function table(label: string, heads: string[], rows: Content[][], kind = ""): Element {
  const cells = (tag: string, row: Content[]) => h("tr", {}, row.map((cell) => h(tag, tag === "th" ? { scope: "col" } : {}, cell)));
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label },
    h("table", { class: kind }, h("thead", {}, cells("th", heads)), h("tbody", {}, rows.map((row) => cells("td", row)))));
}

/** Draws the shares of a total as a bar. The table is its key. */
export function shares(label: string, heads: string[], parts: [string, number][], format: (value: number) => string): Element[] {
  const total = parts.reduce((sum, [, value]) => sum + value, 0);
  const share = (value: number) => `${total ? (100 * value / total).toFixed(2) : 0} %`;
  const color = (at: number) => `s${Math.min(at, 5)}`;
  // A width in an attribute would need `unsafe-inline`; the property does not.
  const bars = parts.map(([, value], at) => {
    const bar = h("i", { class: color(at) }) as HTMLElement;
    bar.style.flexGrow = String(value);
    return bar;
  });
  return [
    h("div", { class: "bar", role: "img", "aria-label": parts.map(([name, value]) => `${name} ${share(value)}`).join(", ") }, bars),
    table(label, [...heads, "share"], parts.map(([name, value], at) => [[h("span", { class: `key ${color(at)}` }), name], format(value), share(value)]), "shares"),
  ];
}

/** Creates a labeled field. */
export function field(id: string, label: string, input: Element): Element {
  input.setAttribute("id", id);
  return h("div", { class: "field" }, h("label", { for: id }, label), input);
}

/** Creates a button that copies a text. */
export function copyButton(label: string, text: () => string): Element {
  const button = h("button", { type: "button", class: "copy" }, label);
  const answer = (word: string) => {
    button.textContent = word;
    setTimeout(() => (button.textContent = label), 2000);
  };
  button.addEventListener("click", () => {
    navigator.clipboard.writeText(text()).then(() => answer("Copied"), () => answer("The browser does not allow it"));
  });
  return button;
}

/** Creates the description of an error. */
export function failure(error: unknown, ...more: Content[]): Element {
  const { code, message, hint } = error instanceof HfMetaError ? error : { code: "error", message: String(error), hint: undefined };
  return h("div", { class: "error", role: "alert" }, h("p", {}, h("strong", {}, code), ` ${message}`), hint !== undefined && h("p", { class: "quiet" }, `${hint[0]!.toUpperCase()}${hint.slice(1)}.`.replace(/(an )?`accessToken`/, "a token")), more);
}
