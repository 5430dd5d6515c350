import { HfMetaError, Hub, open, parseSource, verify, type Checkpoint, type CountReport, type LocalFiles, type VerifyReport } from "../js/index.js";

import { copyButton, count, failure, h, parameters, table } from "./dom.js";
import { memorySection } from "./memory.js";
import { MAX_ROWS, findingList, metadataSection, moduleSection, overview, tensors, verifySection } from "./sections.js";

const find = <T extends HTMLElement>(id: string) => document.getElementById(id) as T;
const [form, input, status, result] = [find<HTMLFormElement>("form"), find<HTMLInputElement>("name"), find("status"), find("result")];
const [token, folder] = [find<HTMLInputElement>("token"), find<HTMLInputElement>("folder")];
const hubUrl = new URLSearchParams(location.search).get("hub") ?? undefined;
/** The host of the Hub, unless it is the public one. */
const host = hubUrl && URL.canParse(hubUrl) && new URL(hubUrl).host !== "huggingface.co" ? new URL(hubUrl).host : undefined;
let running = new AbortController();
let shown: Checkpoint | undefined;
let hub: Hub | undefined;

/** The fragment of the URL that shows a repository. */
const fragment = (name: string) => `#${encodeURIComponent(name).replace(/%(2F|3A|40)/g, decodeURIComponent)}`;

function show(checkpoint: Checkpoint, isLocal: boolean, metadata: Element | false, verifyAll: () => Promise<VerifyReport>): void {
  const report = checkpoint.json() as CountReport;
  const badge = `![params: ${parameters(report.parameterTotal)}](https://img.shields.io/badge/params-${parameters(report.parameterTotal)}-blue)`;
  const copies = [!isLocal && copyButton("Copy link", () => location.href), copyButton("Copy JSON", () => JSON.stringify(report, undefined, 2))];
  result.replaceChildren(...[
    h("section", {}, h("h2", {}, report.source), host !== undefined && !isLocal && h("p", { class: "quiet" }, `from ${host}`), ...overview(report), h("p", { class: "row" }, copies)),
    metadata,
    report.findings.length > 0 && h("section", {}, h("h2", {}, "Findings"), findingList(report.findings)),
    verifySection(verifyAll),
    memorySection(checkpoint, report),
    h("section", {}, h("h2", {}, "Counted"), table("Explanation of the count", ["dtype", "tensors", "elements", "parameters", "reason"],
      report.breakdown.groups.map((group) => [group.dtype, count(group.tensors), count(group.elements), count(group.parameters), group.buffer ? `${group.reason} (${group.buffer})` : group.reason]))),
    moduleSection(checkpoint.tree()),
    tensors(report),
    h("section", {}, h("h2", {}, "Badge"), h("pre", { tabindex: "0" }, badge), copyButton("Copy", () => badge)),
  ].filter((part) => part !== false));
}

/** Reads weights and shows them. `choice` creates a link to one of several weight sets. */
async function read(name: string | LocalFiles, path: string | undefined, choice: (path: string) => Element): Promise<void> {
  running.abort();
  const { signal } = (running = new AbortController());
  const text = typeof name === "string" ? name : name.name ?? "";
  document.title = `${text} · hf-meta`;
  const progress = h("progress", { "aria-label": "Shards" });
  status.replaceChildren(h("p", {}, `Reading ${text} …`), progress);
  result.replaceChildren();
  try {
    if (hub?.options.accessToken !== (token.value.trim() || undefined)) hub = undefined;
    hub ??= new Hub({ hubUrl, accessToken: token.value.trim() || undefined });
    const options = { hub, path, signal };
    const checkpoint = await open(name, { ...options, memory: {}, onProgress: ({ done, total }) => {
      progress.setAttribute("max", String(total));
      progress.setAttribute("value", String(done));
    } });
    const metadata = metadataSection(await checkpoint.metadata(), await checkpoint.thumbnail());
    if (signal.aborted) return checkpoint.free();
    shown?.free();
    show(shown = checkpoint, typeof name !== "string", metadata, () => verify(name, options));
    status.replaceChildren(...(hub.rejectedToken ? [failure(hub.rejectedToken)] : []));
    // A pasted URL becomes the name of its repository.
    if (typeof name === "string") history.replaceState(null, "", fragment(input.value = (checkpoint.json() as CountReport).source));
  } catch (error) {
    if (signal.aborted) return;
    const sets = error instanceof HfMetaError ? error.otherSets : undefined;
    status.replaceChildren(failure(error, sets && h("ul", {}, sets.slice(0, MAX_ROWS).map(({ path }) => h("li", {}, choice(path))))));
  }
}

/** Reads the repository in the fragment of the URL. */
async function readRepository(): Promise<void> {
  const name = decodeURIComponent(location.hash.slice(1));
  if (!name) return;
  input.value = name;
  const { repo, revision } = await parseSource(name, { ...(hubUrl !== undefined && { hubUrl }) }).catch(() => ({ repo: name, revision: "main" }));
  await read(name, undefined, (path) =>
    h("a", { href: fragment(`hf://${repo}@${revision.replaceAll("/", "%2F")}/${path}`) }, path));
}

/** Reads the chosen folder. Its name is the first part of all paths. */
function readFolder(path?: string): void {
  const chosen = [...(folder.files ?? [])].map((file) => [file.webkitRelativePath || file.name, file] as const);
  if (!chosen.length) return;
  const name = chosen[0]![0].split("/")[0]!;
  const files = Object.fromEntries(chosen.map(([path, file]) => [path.slice(path.indexOf("/") + 1), file]));
  history.replaceState(null, "", location.pathname + location.search);
  input.value = "";
  void read({ files, name }, path, (path) => {
    const button = h("button", { type: "button" }, path);
    button.addEventListener("click", () => readFolder(path));
    return button;
  });
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  const target = fragment(input.value.trim());
  if (location.hash === target) void readRepository();
  else location.hash = target;
});
folder.addEventListener("change", () => readFolder());
addEventListener("hashchange", () => void readRepository());
if (host !== undefined) find("host").replaceChildren(`This page reads ${host}, not huggingface.co.`);
void readRepository();
