// The package as npm publishes it: types, size, and its use in a clean project.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";

import { command, sorted, startHub, writeRepos } from "./support.mjs";

/** The maximum sizes, compressed: the module, and the second file, which many models do not need. */
const MAX_GZIPPED_BYTES = { "index.js": 300_000, "second.js": 160_000 };

const own = join(import.meta.dirname, "..");
const run = (program, args, options) => execFileSync(program, args, { encoding: "utf8", stdio: ["ignore", "pipe", "inherit"], ...options });
const node = (file, env = {}) => run("node", [file], { cwd: project, env: { ...process.env, ...env } }).trim();
let hub;
let project;
let archive;

before(async () => {
  hub = await startHub();
  project = mkdtempSync(join(tmpdir(), "hf-meta-"));
  archive = join(project, run("npm", ["pack", "--silent", "--pack-destination", project], { cwd: join(own, "pkg") }).trim());
  writeFileSync(join(project, "package.json"), '{ "type": "module", "private": true }');
  run("npm", ["install", "--silent", "--offline", "--no-audit", "--no-fund", archive], { cwd: project });
});
after(() => {
  hub.stop();
  rmSync(project, { recursive: true });
});

test("the size is bounded", () => {
  for (const [name, limit] of Object.entries(MAX_GZIPPED_BYTES)) {
    const bytes = gzipSync(readFileSync(join(own, "pkg/esm", name)), { level: 9 }).length;
    console.log(`${name}: ${bytes} bytes, compressed`);
    assert.ok(bytes <= limit, `${name}: ${bytes}`);
  }
});

test("the types are found in every way of resolution", () => {
  run("node", [join(own, "node_modules/.bin/attw"), archive, "--profile", "node16"]);
});

// Counts all repositories. A function that was called too early would end the core, and the error would have no code.
const COUNT = `
import { fit, inspect, verify } from "./first/esm/index.js";
const codes = {};
const read = (call, ...args) => call(...args).then(() => "counted", (error) => error.code ?? String(error));
for (const [hubUrl, repos] of JSON.parse(process.env.REPOS)) for (const [at, repo] of repos.entries()) {
  const code = await read(inspect, repo, { summary: true, hubUrl });
  codes[code] = (codes[code] ?? 0) + 1;
  if (repo === "gpt2") codes[repo] = code;
  if (code === "counted" && at < 10) codes[await read(verify, repo, { hubUrl }) + await read(fit, repo, {}, { hubUrl })] = 1;
}
console.log(JSON.stringify(codes));`;

test("without the second file, plain models are counted, and other calls fail with a code", async () => {
  const [folder, first] = [await writeRepos(), join(project, "first")];
  const written = await startHub(folder);
  try {
    cpSync(join(own, "pkg"), first, { recursive: true });
    rmSync(join(first, "esm/second.js"));
    writeFileSync(join(project, "first.mjs"), COUNT);
    const repos = JSON.stringify([hub, written].map(({ hubUrl, repos }) => [hubUrl, repos]));
    const { counted, network, ...others } = JSON.parse(node("first.mjs", { REPOS: repos }));
    assert.ok(counted > 150 && network > 300, String([counted, network]));
    assert.deepEqual(others, { gpt2: "counted", invalidSource: 1, networknetwork: 1, severalSets: 3 });
  } finally {
    written.stop();
    rmSync(folder, { recursive: true });
  }
});

// The experts need the tables, which are in the second file.
const PRINT = `inspect("openai/gpt-oss-20b", { summary: true, hubUrl: process.env.HF_ENDPOINT })
  .then(({ parameterTotal }) => console.log(parameterTotal));`;

test("modules, CommonJS and bundles run", async () => {
  const env = { HF_ENDPOINT: hub.hubUrl };
  writeFileSync(join(project, "a.mjs"), `import { inspect } from "hf-meta";\n${PRINT}`);
  writeFileSync(join(project, "b.cjs"), `const { inspect } = require("hf-meta");\n${PRINT}`);
  const entryPoints = [join(project, "a.mjs")];
  await build({ entryPoints, bundle: true, format: "esm", outfile: join(project, "c.mjs"), logLevel: "warning" });
  for (const file of ["a.mjs", "b.cjs", "c.mjs"]) assert.equal(node(file, env), "20914757184", file);
});

test("an uncaught error does not print the whole module", () => {
  writeFileSync(join(project, "uncaught.mjs"), 'import { inspect } from "hf-meta";\nawait inspect("?");');
  const uncaught = () => run("node", ["uncaught.mjs"], { cwd: project, stdio: "pipe" });
  assert.throws(uncaught, ({ stderr }) => stderr.includes("invalidSource") && stderr.length < 5000);
});

test("the command prints the documents of the other command", async () => {
  const env = { ...process.env, HF_ENDPOINT: hub.hubUrl, HF_TOKEN: "" };
  const [expected] = await command(hub.hubUrl, "--json", "--no-cache", "gpt2");
  const found = run("npx", ["--offline", "hf-meta", "gpt2"], { cwd: project, env });
  assert.equal(sorted(JSON.parse(found)), sorted(expected));
  const [report] = await command(hub.hubUrl, "verify", "--json", "gpt2");
  const verified = run("npx", ["--offline", "hf-meta", "verify", "gpt2"], { cwd: project, env });
  assert.equal(sorted(JSON.parse(verified)), sorted(report));
  const failed = join(project, "node_modules/.bin/hf-meta");
  assert.throws(() => run(failed, ["org/none"], { env }), ({ status, stdout }) => status === 1 && JSON.parse(stdout).error.code === "repoNotFound");
  for (const args of [["--none"], ["diff", "gpt2"], ["verify"], []]) {
    assert.throws(() => run(failed, args, { env, stdio: "pipe" }), ({ status, stderr }) => status === 2 && !/\n\s+at /.test(stderr), args.join());
  }
});

test("the types describe the documents", () => {
  writeFileSync(join(project, "types.ts"), `
import { diff, fit, inspect, parseSafetensorsMetadata, HfMetaError, type ErrorCode, type Weights } from "hf-meta";
export async function typed(): Promise<number | undefined> {
  const weights: Weights = await inspect("gpt2");
  const { parameterTotal, moe } = await inspect("gpt2", { summary: true });
  const parsed = await parseSafetensorsMetadata({ repo: "gpt2", computeParametersCount: true });
  const shards: string[] = parsed.sharded ? Object.keys(parsed.headers) : Object.keys(parsed.header);
  const { memory } = await fit("gpt2", { budget: "24GB" });
  const code: ErrorCode = new HfMetaError("network", "x").code;
  const { summary } = await diff("a/b", "a/c") as { summary?: unknown };
  console.log(weights.format, shards, code, summary, moe?.active, parsed.parameterCount);
  return memory?.totalBytes ?? parameterTotal;
}
// @ts-expect-error: the counts are missing unless they are requested
export const wrong = async () => (await parseSafetensorsMetadata({ repo: "gpt2" })).parameterTotal.toFixed();
`);
  for (const resolution of [["nodenext", "nodenext"], ["esnext", "bundler"]]) {
    run("node", [join(own, "node_modules/typescript/bin/tsc"), "--noEmit", "--strict", "--target", "es2022", "--lib", "es2022,dom", "--module", resolution[0], "--moduleResolution", resolution[1], "types.ts"], { cwd: project });
  }
});
