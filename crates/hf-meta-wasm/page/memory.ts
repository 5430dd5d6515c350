// The section about memory: the conditions as fields, the answer, and the memory over the context.
import { HfMetaError, type Checkpoint, type CountReport, type Memory, type MemoryOptions } from "../js/index.js";

import { bytes, count, failure, field, h, table } from "./dom.js";

const SIZES = ["8GB", "12GB", "16GB", "24GB", "32GB", "48GB", "80GB", "96GB", "141GB", "192GB"];
const ENGINES = [["stored", "any program"], ["vllm", "vLLM"], ["llama.cpp", "llama.cpp"]] as const;

/** Draws weights and cache over the context, and the budget as a line. */
function chart(checkpoint: Checkpoint, memory: Memory, options: MemoryOptions): Element | false {
  if (!memory.cacheBytes) return false;
  const longest = Math.max(memory.maxContext ?? 0, memory.context);
  const sizes = [0, 1, 2, 3, 4, 5, 6, 7, 8].map((step) => Math.max(1, Math.round(longest * step / 8)))
    .map((context) => [context, checkpoint.memory({ ...options, context }).totalBytes ?? 0] as const);
  const top = 1.15 * Math.max(...sizes.map(([, size]) => size), memory.budgetBytes ?? 0);
  const at = (context: number, size: number) => `${50 + 540 * context / longest} ${190 - 170 * size / top}`;
  const budget = memory.budgetBytes;
  return h("svg", { viewBox: "0 0 600 220", role: "img", "aria-label": `Memory from ${bytes(sizes[0]![1])} to ${bytes(sizes.at(-1)![1])} at ${count(longest)} tokens` },
    h("path", { class: "axis", d: "M50 10V190H590" }), h("path", { d: `M${sizes.map(([context, size]) => at(context, size)).join("L")}` }),
    budget ? h("path", { class: "budget", d: `M${at(0, budget)}L${at(longest, budget)}` }) : false,
    h("text", { x: "0", y: "20" }, bytes(top)), h("text", { x: "50", y: "210" }, "0 tokens"), h("text", { x: "590", y: "210", "text-anchor": "end" }, count(longest)));
}

/** Describes whether the model fits, with the conditions that were not given. */
function verdict(memory: Memory, gpus: number): Element[] {
  const known = (value?: number | null) => value == null ? "unknown" : bytes(value);
  const assumed = memory.contextSource === "default" ? " (assumed)" : "";
  const fits = memory.fits == null ? "It is unknown whether it fits" : memory.fits ? "It fits" : "It does not fit";
  const context = memory.cacheBytes ? ` at ${count(memory.context)} tokens${assumed}` : "";
  const rest = !memory.longestContext || !memory.cacheBytes ? "" : `; at most ${count(memory.longestContext)} tokens fit`;
  const each = gpus > 1 ? ` on each of ${gpus} GPUs` : "";
  return [
    h("p", {}, h("strong", {}, fits), `${context}${rest}.`),
    h("p", { class: "quiet" }, `weights ${bytes(memory.weightBytes)}, cache ${known(memory.cacheBytes)}, total ${known(memory.totalBytes)}${each}; cache in ${memory.cacheDtype}`),
  ];
}

export function memorySection(checkpoint: Checkpoint, report: CountReport): Element {
  const answer = h("div", { "aria-live": "polite" });
  const budget = h("input", { list: "sizes", value: "24GB", autocomplete: "off", size: "8" }) as HTMLInputElement;
  const { maxContext, context: asked } = report.memory ?? {};
  const context = h("input", { placeholder: `${count(maxContext ?? asked ?? 0)}`, autocomplete: "off", size: "8" }) as HTMLInputElement;
  const engine = h("select", {}, ENGINES.map(([value, name]) => h("option", { value }, name))) as HTMLSelectElement;
  const gpus = h("input", { type: "number", min: "1", max: "1024", value: "1" }) as HTMLInputElement;
  const update = () => {
    // Only vLLM divides a model into equal parts.
    gpus.disabled = engine.value !== "vllm";
    const number = gpus.disabled ? 1 : Number(gpus.value || 1);
    const options: MemoryOptions = { engine: engine.value as "vllm", tp: number, ...(context.value.trim() && { context: context.value.trim().replaceAll(",", "") }) };
    try {
      if (!budget.value.trim()) throw new HfMetaError("invalidOption", "the memory of the GPU is missing");
      const memory = checkpoint.memory({ ...options, budget: budget.value.trim() });
      answer.replaceChildren(...verdict(memory, number), ...[chart(checkpoint, memory, options)].filter((drawn) => drawn !== false));
    } catch (error) {
      answer.replaceChildren(failure(error));
    }
  };
  for (const input of [budget, context, engine, gpus]) input.addEventListener("input", update);
  update();
  const quantizations = report.memory?.quantizations ?? [];
  return h("section", {}, h("h2", {}, "Memory"),
    h("div", { class: "row" }, field("budget", "Memory of each GPU", budget), field("context", "Tokens", context), field("engine", "Engine", engine), field("gpus", "GPUs", gpus)),
    h("datalist", { id: "sizes" }, SIZES.map((size) => h("option", { value: size }))),
    answer,
    quantizations.length > 0 && table("Quantizations", ["quantization", "weights"], quantizations.map((one) => [one.quantization, bytes(one.weightBytes)])));
}
