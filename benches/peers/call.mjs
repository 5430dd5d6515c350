// Makes one call of @huggingface/hub, and prints its time as JSON.

import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

// Resolve the module from the working directory, not from this file.
const require = createRequire(`${process.cwd()}/`);
const hub = await import(pathToFileURL(require.resolve("@huggingface/hub")));

const started = performance.now();
const parsed = await hub.parseSafetensorsMetadata({
    repo: process.argv[2],
    hubUrl: process.env.HF_ENDPOINT,
    computeParametersCount: true,
});
const seconds = (performance.now() - started) / 1000;
const parameters = Object.values(parsed.parameterCount).reduce((sum, count) => sum + count, 0);
console.log(JSON.stringify({ seconds, parameters }));
