// One call of @huggingface/hub, with its time as a line of JSON.

import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

// Found from the folder that the call is made in, not from this file.
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
