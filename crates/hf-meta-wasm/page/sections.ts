// The sections of a result.
import { type CountReport, type Finding, type MetadataDocument, type TreeModule, type VerifyReport } from "../js/index.js";

import { bytes, count, failure, h, parameters, shares, table, type Content } from "./dom.js";

export const MAX_ROWS = 200;

export function overview(report: CountReport): Element[] {
  const { parameterTotal: total, moe, parameterExact, filepaths: { length: files } } = report;
  const dtypes = Object.entries(report.parameterCount).sort(([, one], [, other]) => other - one);
  return [
    h("p", { class: "total" }, `${parameters(total)} parameters`),
    h("p", { class: "quiet" }, `${count(total)}${parameterExact ? "" : ", not exact"}`,
      moe ? `; ${count(moe.active)} are active per token (${moe.topK} of ${moe.numExperts} experts)` : ""),
    ...shares("Parameters per dtype", ["dtype", "parameters"], dtypes, count),
    h("p", { class: "quiet" }, `${bytes(report.byteTotal)} in ${files === 1 ? "1 file" : `${count(files)} files`} (${report.format})${report.commit ? `, commit ${report.commit}` : ""}; `,
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

export function moduleSection(modules: TreeModule[]): Element {
  const parts = sizes(modules).sort(([, one], [, other]) => other - one);
  const others = parts.splice(5).reduce((sum, [, value]) => sum + value, 0);
  if (others > 0) parts.push(["others", others]);
  return h("section", {}, h("h2", {}, "Modules"), shares("Bytes per module", ["module", "bytes"], parts, bytes), tree(modules));
}

export function findingList(findings: Finding[]): Element {
  return h("ul", {}, findings.map(({ severity, message, help }) => h("li", { class: severity }, h("strong", {}, severity), ` ${message}`, help !== undefined && h("p", { class: "quiet" }, help))));
}

export function verifySection(read: () => Promise<VerifyReport>): Element {
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

/** The fields of the SAI Model Spec to show, and their names for people. */
const FIELDS = [["title", "Title"], ["author", "Author"], ["license", "License"], ["description", "Description"], ["date", "Date"], ["usageHint", "Usage"], ["triggerPhrase", "Trigger phrase"], ["tags", "Tags"]] as const;
/** The maximum number of characters of a field, and of a value in the list. A header can have megabytes. */
const [MAX_FIELD, MAX_VALUE] = [1000, 300];
/** The maximum number of pixels of a side of a thumbnail. A small file can contain a picture that fills the memory. */
const MAX_SIDE = 4096;
const cut = (text: string, max: number) => (text.length > max ? `${text.slice(0, max)}… (${bytes(text.length)})` : text);

/** Returns the metadata of files, if there are more than a `format`. All texts become text nodes, and the thumbnail an image of pixels. */
export function metadataSection({ files }: MetadataDocument, thumbnail: string | undefined): Element | false {
  const entries = files.flatMap(({ path, metadata }) => Object.entries(metadata ?? {}).map(([key, value]) => [key, value, path] as const));
  if (!entries.some(([key]) => key !== "format")) return false;
  const spec = files.find(({ modelSpec }) => modelSpec)?.modelSpec;
  const fields = FIELDS.flatMap(([name, label]): Content[][] => {
    const value = spec?.[name];
    return value === undefined ? [] : [[label, cut(Array.isArray(value) ? value.join(", ") : value, MAX_FIELD)]];
  });
  const size = files.find((file) => file.thumbnail)?.thumbnail;
  const image = thumbnail !== undefined && size && Math.max(size.width, size.height) <= MAX_SIDE
    ? h("img", { src: thumbnail, alt: "Thumbnail of the model", width: String(size.width), height: String(size.height), decoding: "async" }) : undefined;
  const all = entries.slice(0, MAX_ROWS).map(([key, value, path]) => [cut(key, MAX_VALUE), cut(value, MAX_VALUE), ...(files.length > 1 ? [path] : [])]);
  return h("section", {}, h("h2", {}, "Metadata"),
    h("div", { class: "spec" }, image, fields.length > 0 && table("Fields of the SAI Model Spec", ["field", "value"], fields, "text")),
    h("details", {}, h("summary", {}, `All ${count(entries.length)} entries${entries.length > MAX_ROWS ? `, the first ${MAX_ROWS} are shown` : ""}`),
      table("Metadata of the files", ["key", "value", ...(files.length > 1 ? ["file"] : [])], all, "text keys")));
}

function tree(modules: TreeModule[], depth = 0): Element {
  return h("ul", { class: "tree" }, modules.slice(0, MAX_ROWS).map(({ name, repeats, elements, content }) => {
    const times = repeats > 1 ? ` × ${count(repeats)}` : "";
    if ("tensor" in content) return h("li", {}, `${name}${times} ${content.tensor.dtype} [${content.tensor.shape.join(", ")}]`);
    return h("li", {}, h("details", depth < 1 ? { open: "" } : {}, h("summary", {}, `${name}${times} — ${parameters(elements)} elements`), tree(content.modules, depth + 1)));
  }));
}

type Tensor = { dtype: string; shape: number[] };
export function tensors(report: CountReport): Element {
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
