import { HfMetaError, open, verify, type Checkpoint, type CountReport, type Finding, type Memory, type TreeModule, type VerifyReport } from "../js/index.js";

type Content = Node | string | false | undefined | Content[];
const SVG = "http://www.w3.org/2000/svg";
const MAX_ROWS = 200;
const find = <T extends HTMLElement>(id: string) => document.getElementById(id) as T;
const [form, input, status, result] = [find<HTMLFormElement>("form"), find<HTMLInputElement>("name"), find("status"), find("result")];
let running = new AbortController();
let shown: Checkpoint | undefined;

/** Creates an element. Texts of files become text nodes only. */
function h(tag: string, attributes: Record<string, string>, ...content: Content[]): Element {
  const isDrawn = ["svg", "path", "text"].includes(tag);
  const element = isDrawn ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...(content.flat(9) as Content[]).filter((part) => part || part === "") as (Node | string)[]);
  return element;
}

const count = (value: number) => value.toLocaleString("en");
function short(value: number, units: string[], digits = 3): string {
  let unit = 0;
  while (value >= 999.5 && unit < units.length - 1) [value, unit] = [value / 1000, unit + 1];
  return `${Number(value.toPrecision(digits))}${units[unit]}`;
}
const parameters = (value: number) => short(value, ["", "K", "M", "B", "T"]);
const bytes = (value: number) => short(value, [" B", " kB", " MB", " GB", " TB"]);

function table(label: string, heads: string[], rows: Content[][], kind = ""): Element {
  const cells = (tag: string, row: Content[]) => h("tr", {}, row.map((cell) => h(tag, tag === "th" ? { scope: "col" } : {}, cell)));
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label },
    h("table", { class: kind }, h("thead", {}, cells("th", heads)), h("tbody", {}, rows.map((row) => cells("td", row)))));
}

/** Draws the shares of a total as a bar. The table is its key. */
function shares(label: string, heads: string[], parts: [string, number][], format: (value: number) => string): Element[] {
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

function overview(report: CountReport): Element[] {
  const { parameterTotal: total, moe, parameterExact, filepaths: { length: files } } = report;
  const dtypes = Object.entries(report.parameterCount).sort(([, one], [, other]) => other - one);
  return [
    h("p", { class: "total" }, `${parameters(total)} parameters`),
    h("p", { class: "quiet" }, `${count(total)}${parameterExact ? "" : ", not exact"}`,
      moe ? `; ${count(moe.active)} are active per token (${moe.topK} of ${moe.numExperts} experts)` : ""),
    ...shares("Parameters per dtype", ["dtype", "parameters"], dtypes, count),
    h("p", { class: "quiet" }, `${bytes(report.byteTotal)} in ${files === 1 ? "1 file" : `${count(files)} files`} (${report.format}), commit ${report.commit}; `,
      `${count(report.fetch.requests)} requests, ${bytes(report.fetch.bytesRead)} read, ${report.fetch.seconds.toFixed(2)} s`),
  ];
}

/** Returns the bytes of modules. A module that contains almost all of them is replaced by its content. */
function sizes(modules: TreeModule[], prefix = ""): [string, number][] {
  const total = modules.reduce((sum, { bytes }) => sum + bytes, 0);
  return modules.flatMap(({ name, bytes, content }): [string, number][] => {
    const path = prefix + name;
    return "modules" in content && bytes > 0.9 * total ? sizes(content.modules, `${path}.`) : [[path, bytes]];
  });
}

function moduleSection(modules: TreeModule[]): Element {
  const parts = sizes(modules).sort(([, one], [, other]) => other - one);
  const others = parts.splice(5).reduce((sum, [, value]) => sum + value, 0);
  if (others > 0) parts.push(["others", others]);
  return h("section", {}, h("h2", {}, "Modules"), shares("Bytes per module", ["module", "bytes"], parts, bytes), tree(modules));
}

function findingList(findings: Finding[]): Element {
  return h("ul", {}, findings.map(({ severity, message }) => h("li", { class: severity }, h("strong", {}, severity), ` ${message}`)));
}

function verifySection(read: () => Promise<VerifyReport>): Element {
  const answer = h("div", { "aria-live": "polite" });
  const button = h("button", { type: "button" }, "Verify all files");
  button.addEventListener("click", async () => {
    answer.replaceChildren(h("p", {}, "Reading all headers …"));
    try {
      const { valid, complete, validFiles, files, sets, findings } = await read();
      const checks = sets.map(({ path, configCheck: { compared, reason } }): Content[] =>
        [path, compared ? "shapes match config.json or are listed above" : `not compared with config.json${reason ? `: ${reason}` : ""}`]);
      answer.replaceChildren(
        h("p", {}, h("strong", { class: valid ? "" : "error" }, valid ? "Valid" : "Not valid"), `: ${count(validFiles)} of ${count(files)} weight files have a valid header${complete ? "" : ", and not all were read"}.`),
        findingList(findings), table("Verified weights", ["weights", "comparison"], checks, "text"));
    } catch (error) {
      answer.replaceChildren(failure(error));
    }
  });
  return h("section", {}, h("h2", {}, "Verify"), button, answer);
}

function failure(error: unknown, ...more: Content[]): Element {
  const { code, message } = error instanceof HfMetaError ? error : { code: "error", message: String(error) };
  return h("div", { class: "error", role: "alert" }, h("p", {}, h("strong", {}, code), ` ${message}`), more);
}

/** Draws weights and cache over the context, and the budget as a line. */
function chart(checkpoint: Checkpoint, memory: Memory): Element | false {
  if (!memory.cacheBytes) return false;
  const longest = Math.max(memory.maxContext ?? 0, memory.context);
  const sizes = [0, 1, 2, 3, 4, 5, 6, 7, 8].map((step) => Math.max(1, Math.round(longest * step / 8)))
    .map((context) => [context, checkpoint.memory({ context }).totalBytes ?? 0] as const);
  const top = 1.15 * Math.max(...sizes.map(([, size]) => size), memory.budgetBytes ?? 0);
  const at = (context: number, size: number) => `${50 + 540 * context / longest} ${190 - 170 * size / top}`;
  const budget = memory.budgetBytes;
  return h("svg", { viewBox: "0 0 600 220", role: "img", "aria-label": `Memory from ${bytes(sizes[0]![1])} to ${bytes(sizes.at(-1)![1])} at ${count(longest)} tokens` },
    h("path", { class: "axis", d: "M50 10V190H590" }), h("path", { d: `M${sizes.map(([context, size]) => at(context, size)).join("L")}` }),
    budget ? h("path", { class: "budget", d: `M${at(0, budget)}L${at(longest, budget)}` }) : false,
    h("text", { x: "0", y: "20" }, bytes(top)), h("text", { x: "50", y: "210" }, "0 tokens"), h("text", { x: "590", y: "210", "text-anchor": "end" }, count(longest)));
}

function memorySection(checkpoint: Checkpoint, report: CountReport): Element {
  const answer = h("div", { "aria-live": "polite" });
  const select = h("select", { id: "budget" }, ["8GB", "16GB", "24GB", "48GB", "80GB", "141GB", "640GB"].map((size) =>
    h("option", size === "24GB" ? { selected: "" } : {}, size))) as HTMLSelectElement;
  const update = () => {
    const memory = checkpoint.memory({ budget: select.value });
    const known = (value?: number | null) => value == null ? "unknown" : bytes(value);
    const fits = memory.fits == null ? "It is unknown whether it fits" : memory.fits ? "It fits" : "It does not fit";
    const rest = !memory.longestContext ? "" : `; at most ${count(memory.longestContext)} tokens fit`;
    answer.replaceChildren(h("p", {}, h("strong", {}, fits), ` at ${count(memory.context)} tokens${rest}.`),
      h("p", { class: "quiet" }, `weights ${bytes(memory.weightBytes)}, cache ${known(memory.cacheBytes)}, total ${known(memory.totalBytes)}`),
      ...[chart(checkpoint, memory)].filter((drawn) => drawn !== false));
  };
  select.addEventListener("change", update);
  update();
  const quantizations = report.memory?.quantizations ?? [];
  return h("section", {}, h("h2", {}, "Memory"), h("div", { class: "row" }, h("label", { for: "budget" }, "Memory of the GPU"), select), answer,
    quantizations.length > 0 && table("Quantizations", ["quantization", "weights"], quantizations.map((one) => [one.quantization, bytes(one.weightBytes)])));
}

function tree(modules: TreeModule[], depth = 0): Element {
  return h("ul", { class: "tree" }, modules.slice(0, MAX_ROWS).map(({ name, repeats, elements, content }) => {
    const times = repeats > 1 ? ` × ${count(repeats)}` : "";
    if ("tensor" in content) return h("li", {}, `${name}${times} ${content.tensor.dtype} [${content.tensor.shape.join(", ")}]`);
    return h("li", {}, h("details", depth < 1 ? { open: "" } : {}, h("summary", {}, `${name}${times} — ${parameters(elements)} elements`), tree(content.modules, depth + 1)));
  }));
}

type Tensor = { dtype: string; shape: number[] };
function tensors(report: CountReport): Element {
  const { header, headers } = report as { header?: Record<string, Tensor>; headers?: Record<string, Record<string, Tensor> & { tensors?: Record<string, Tensor> }> };
  const all = Object.values(headers ?? { header: header ?? {} }).flatMap((one) => Object.entries((one as { tensors?: Record<string, Tensor> }).tensors ?? one));
  const rows = all.filter(([name, tensor]) => name !== "__metadata__" && tensor.shape);
  const body = h("div", {});
  const filter = h("input", { id: "filter", type: "search" }) as HTMLInputElement;
  const update = () => {
    const found = rows.filter(([name]) => name.includes(filter.value));
    body.replaceChildren(h("p", { class: "quiet" }, `${count(found.length)} tensors${found.length > MAX_ROWS ? `, the first ${MAX_ROWS} are shown` : ""}`),
      table("Tensors", ["name", "dtype", "shape"], found.slice(0, MAX_ROWS).map(([name, { dtype, shape }]) => [name, dtype, `[${shape.join(", ")}]`])));
  };
  filter.addEventListener("input", update);
  update();
  return h("details", {}, h("summary", {}, h("h2", {}, "Tensors")), h("div", { class: "row" }, h("label", { for: "filter" }, "Name contains"), filter), body);
}

function show(checkpoint: Checkpoint, verifyAll: () => Promise<VerifyReport>): void {
  const report = checkpoint.json() as CountReport;
  const badge = `https://img.shields.io/badge/params-${parameters(report.parameterTotal)}-blue`;
  result.replaceChildren(...[
    h("section", {}, h("h2", {}, report.source), ...overview(report)),
    report.findings.length > 0 && h("section", {}, h("h2", {}, "Findings"), findingList(report.findings)),
    verifySection(verifyAll),
    memorySection(checkpoint, report),
    h("section", {}, h("h2", {}, "Counted"), table("Explanation of the count", ["dtype", "tensors", "elements", "parameters", "reason"],
      report.breakdown.groups.map((group) => [group.dtype, count(group.tensors), count(group.elements), count(group.parameters), group.buffer ? `${group.reason} (${group.buffer})` : group.reason]))),
    moduleSection(checkpoint.tree()),
    tensors(report),
    h("section", {}, h("h2", {}, "Badge"), h("pre", { tabindex: "0" }, `![params: ${parameters(report.parameterTotal)}](${badge})`)),
  ].filter((part) => part !== false));
}

async function load(): Promise<void> {
  const wanted = decodeURIComponent(location.hash.slice(1));
  running.abort();
  if (!wanted) return;
  const { signal } = (running = new AbortController());
  input.value = wanted;
  document.title = `${wanted} · hf-meta`;
  const [, repo = wanted, path] = /^([^:]+):(.+)$/.exec(wanted) ?? [];
  const progress = h("progress", { "aria-label": "Shards" });
  status.replaceChildren(h("p", {}, `Reading ${wanted} …`), progress);
  result.replaceChildren();
  try {
    const options = { hubUrl: new URLSearchParams(location.search).get("hub") ?? undefined, path, signal };
    const checkpoint = await open(repo, { ...options, memory: {}, onProgress: ({ done, total }) => {
      progress.setAttribute("max", String(total));
      progress.setAttribute("value", String(done));
    } });
    shown?.free();
    show(shown = checkpoint, () => verify(repo, options));
    status.replaceChildren();
  } catch (error) {
    if (signal.aborted) return;
    const sets = error instanceof HfMetaError ? error.otherSets : undefined;
    status.replaceChildren(failure(error, sets && h("ul", {}, sets.slice(0, MAX_ROWS).map(({ path }) => h("li", {}, h("a", { href: `#${repo}:${path}` }, path))))));
  }
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  const name = input.value.trim().replace(/^https:\/\/(huggingface\.co|hf\.co)\//, "").replace(/\/+$/, "");
  if (location.hash.slice(1) === name) void load();
  else location.hash = name;
});
addEventListener("hashchange", () => void load());
void load();
