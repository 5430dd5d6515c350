// Makes one call of @huggingface/gguf, and prints its time as JSON.

import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

// Resolve the module from the working directory, not from this file.
const require = createRequire(`${process.cwd()}/`);
const { gguf } = await import(pathToFileURL(require.resolve("@huggingface/gguf")));

const url = `${process.env.HF_ENDPOINT}/${process.argv[2]}/resolve/main/model-F32.gguf`;
const started = performance.now();
const parsed = await gguf(url, { computeParametersCount: true });
const seconds = (performance.now() - started) / 1000;
console.log(JSON.stringify({ seconds, parameters: parsed.parameterCount }));
