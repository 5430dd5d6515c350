// The package as npm publishes it: types, size, and its use in a clean project.
import assert from "node:assert/strict";
import { execFile, execFileSync, spawnSync } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { promisify } from "node:util";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";

import { GOOD, command, exitStatus, serveFiles, sorted, startHub, writeRepos } from "./support.mjs";

/** The maximum sizes, compressed: the module, the core, which the first call loads, and the file that many models do not need. */
const MAX_GZIPPED_BYTES = { "index.js": 21_000, "first.js": 330_000, "second.js": 368_000 };

const own = join(import.meta.dirname, "..");
const run = (program, args, options) => execFileSync(program, args, { encoding: "utf8", stdio: ["ignore", "pipe", "inherit"], ...options });
/** Compiles files of the project. Prints what is wrong with them. */
function compile(resolution, ...files) {
  const module = resolution === "bundler" ? "esnext" : resolution;
  const options = ["--noEmit", "--strict", "--noUncheckedIndexedAccess", "--skipLibCheck", "--target", "es2022", "--lib", "es2022,dom,dom.iterable", "--module", module, "--moduleResolution", resolution];
  run("node", [join(own, "node_modules/typescript/bin/tsc"), ...options, ...files], { cwd: project, stdio: ["ignore", "inherit", "inherit"] });
}
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

test("the README states the sizes of what is published", () => {
  const readme = readFileSync(join(own, "pkg/README.md"), "utf8");
  for (const [name, limit] of Object.entries(MAX_GZIPPED_BYTES)) {
    assert.ok(readme.includes(`| \`${name}\` | ${limit / 1000} kB |`), name);
  }
});

test("an import alone does not load the core", async () => {
  writeFileSync(join(project, "headers.mjs"), 'import { inspectHeaders } from "hf-meta";\nconsole.log(typeof inspectHeaders);');
  const bundled = { entryPoints: [join(project, "headers.mjs")], bundle: true, minify: true, splitting: true, format: "esm", logLevel: "warning" };
  const { outputFiles } = await build({ ...bundled, outdir: join(project, "split"), write: false });
  const entry = outputFiles.find(({ path }) => path.endsWith("headers.js"));
  const bytes = gzipSync(entry.contents, { level: 9 }).length;
  console.log(`a bundle of inspectHeaders begins with ${bytes} bytes, compressed`);
  assert.ok(bytes <= MAX_GZIPPED_BYTES["index.js"], String(bytes));
});

test("the types are found in every way of resolution", () => {
  run("node", [join(own, "node_modules/.bin/attw"), archive, "--profile", "node16"]);
});

// Counts all repositories. A function that was called too early would end the core, and the error would have no code.
const COUNT = `
import { readFileSync } from "node:fs";
import { fit, inspect, inspectHeaders, metadata, verify } from "./first/esm/index.js";
const codes = {};
const read = (call, ...args) => call(...args).then(() => "counted", (error) => error.code ?? String(error));
for (const [hubUrl, repos] of JSON.parse(process.env.REPOS)) for (const [at, repo] of repos.entries()) {
  const code = await read(inspect, repo, { summary: true, hubUrl });
  codes[code] = (codes[code] ?? 0) + 1;
  if (repo === "gpt2") codes[repo] = code + await read(metadata, repo, { hubUrl });
  if (code === "counted" && at < 10) codes[await read(verify, repo, { hubUrl }) + await read(fit, repo, {}, { hubUrl })] = 1;
}
// The content of these files is not what their name says.
const misnamed = JSON.parse(process.env.MISNAMED).map((path) => read(inspectHeaders, { "model.safetensors": readFileSync(path) }));
codes.misnamed = await Promise.all(misnamed);
console.log(JSON.stringify(codes));`;

test("without the second file, plain models are counted, and other calls fail with a code", async () => {
  const [folder, first] = [await writeRepos(), join(project, "first")];
  const written = await startHub(folder);
  try {
    cpSync(join(own, "pkg"), first, { recursive: true });
    rmSync(join(first, "esm/second.js"));
    writeFileSync(join(project, "first.mjs"), COUNT);
    const misnamed = ["gguf/blocks.gguf", "pytorch/ema.pt"].map((path) => join(own, "../../fixtures", path));
    const repos = JSON.stringify([hub, written].map(({ hubUrl, repos }) => [hubUrl, repos]));
    const { counted, network, ...others } = JSON.parse(node("first.mjs", { REPOS: repos, MISNAMED: JSON.stringify(misnamed) }));
    assert.ok(counted > 130 && network > 300, String([counted, network]));
    assert.deepEqual(others, { gpt2: "countednetwork", misnamed: ["network", "network"], invalidSource: 1, networknetwork: 1, severalSets: 3 });
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

/** Runs the command of the package. Returns its exit status, its documents, and its messages. */
function bin(args, env) {
  const { status, stdout, stderr } = spawnSync(join(project, "node_modules/.bin/hf-meta"), args, { encoding: "utf8", env: { ...process.env, HF_ENDPOINT: hub.hubUrl, HF_TOKEN: "", ...env } });
  return { status, stdout, stderr };
}

test("the command prints the documents of the other command", async () => {
  const env = { ...process.env, HF_ENDPOINT: hub.hubUrl, HF_TOKEN: "" };
  const [expected] = await command(hub.hubUrl, "--json", "--no-cache", "gpt2");
  const found = run("npx", ["--offline", "hf-meta", "gpt2"], { cwd: project, env });
  assert.equal(sorted(JSON.parse(found)), sorted(expected));
  assert.equal(sorted(JSON.parse(bin(["--json", "https://huggingface.co/gpt2"]).stdout)), sorted(expected));
  const [metadata] = await command(hub.hubUrl, "--metadata", "--json", "--no-cache", "gpt2");
  assert.equal(sorted(JSON.parse(bin(["--metadata", "gpt2"]).stdout)), sorted(metadata));
  const [report] = await command(hub.hubUrl, "verify", "--json", "gpt2");
  assert.equal(sorted(JSON.parse(bin(["verify", "--json", "gpt2"]).stdout)), sorted(report));
});

test("the command has the exit statuses of the other command, and errors on stderr", async () => {
  const cases = [
    ["gpt2"], ["org/none"], ["gpt2@none"], ["example/Tiny-GGUF"], ["gpt2", "org/none"], ["gpt2", "--path", "none"], ["a//b"],
    ["verify", "gpt2"], ["verify", "CompVis/stable-diffusion-v1-4"], ["verify", "org/none"], ["verify", "--strict", "gpt2"],
    ["diff", "gpt2", "gpt2"], ["diff", "gpt2", "roberta-base"], ["diff", "gpt2", "org/none"], ["diff", "gpt2", "example/Tiny-GGUF"], ["diff", "gpt2"], ["verify"], ["--none"], [],
  ];
  for (const args of cases) {
    const { status, stdout, stderr } = bin(args);
    const options = args[0] === "diff" || args[0] === "verify" ? [] : ["--no-cache"];
    const expected = await exitStatus(hub.hubUrl, ...args, "--json", ...options);
    assert.equal(status, expected, args.join(" "));
    assert.ok(!/\n\s+at /.test(stderr), stderr);
    const failed = stdout.split("\n").filter(Boolean).map((line) => JSON.parse(line)).filter(({ error }) => error);
    for (const { error } of failed) assert.ok(stderr.includes(`: ${error.message}`), stderr);
    if (failed.length) assert.match(stderr, /\n {2}help: /);
    assert.ok(!/accessToken|hubUrl|`path`/.test(stderr), stderr);
  }
  assert.equal(bin(["gpt2"], { HF_ENDPOINT: "http://127.0.0.1:9" }).status, 3);
  const unusable = bin(["gpt2"], { HF_ENDPOINT: "hub" });
  assert.deepEqual([unusable.status, unusable.stderr.includes("HF_ENDPOINT")], [2, true]);
  assert.match(bin(["--version"]).stdout, /^hf-meta \d+\.\d+\.\d+\n$/);
  assert.deepEqual([bin(["--help"]).status, bin(["-h"]).stdout.startsWith("hf-meta")], [0, true]);
});

test("a rejected token is a warning of the command", () => {
  const rejects = { "x-error-message": "Invalid credentials in Authorization header" };
  const answer = ({ headers: { authorization } }, response) => authorization && response.writeHead(401, rejects).end();
  return serveFiles({ "model.safetensors": GOOD }, answer, async ({ hubUrl }) => {
    const env = { ...process.env, HF_ENDPOINT: hubUrl, HF_TOKEN: "hf_old" };
    const { stdout, stderr } = await promisify(execFile)(join(project, "node_modules/.bin/hf-meta"), ["org/name", "--summary"], { env });
    assert.equal(JSON.parse(stdout).parameterTotal, 2);
    assert.match(stderr, /^warning: .*HF_TOKEN/);
  });
});

test("the types describe the documents", () => {
  writeFileSync(join(project, "types.ts"), `
import { diff, fit, inspect, metadata, parseSafetensorsMetadata, HfMetaError, type ErrorCode, type Weights } from "hf-meta";
export async function typed(): Promise<number | undefined> {
  const weights: Weights = await inspect("gpt2");
  const { parameterTotal, moe } = await inspect("gpt2", { summary: true });
  const parsed = await parseSafetensorsMetadata({ repo: "gpt2", computeParametersCount: true });
  const shards: string[] = parsed.sharded ? Object.keys(parsed.headers) : Object.keys(parsed.header);
  const { memory } = await fit("gpt2", { budget: "24GB" });
  const [file] = (await metadata("gpt2")).files;
  const texts: Record<string, string> = file?.metadata ?? {};
  const spec: [string?, number?, string[]?] = [file?.modelSpec?.title, file?.modelSpec?.resolution?.width, file?.modelSpec?.tags];
  console.log(texts, spec, file?.thumbnail?.mediaType);
  const code: ErrorCode = new HfMetaError("network", "x").code;
  const { summary } = await diff("a/b", "a/c") as { summary?: unknown };
  console.log(weights.format, shards, code, summary, moe?.active, parsed.parameterCount);
  return memory?.totalBytes ?? parameterTotal;
}
// @ts-expect-error: the counts are missing unless they are requested
export const wrong = async () => (await parseSafetensorsMetadata({ repo: "gpt2" })).parameterTotal.toFixed();
`);
  for (const resolution of ["nodenext", "bundler"]) compile(resolution, "types.ts");
});

/** A program that uses the result of \`parseSafetensorsMetadata\` as huggingface.js types it. */
const DROP_IN = (name) => `
import { parseSafetensorsMetadata, type Dtype, type SafetensorsFileHeader, type SafetensorsIndexJson, type SafetensorsParseFromRepo,
  type SafetensorsShardedHeaders, type TensorInfo, type TensorName } from "${name}";
export async function used(accessToken?: string): Promise<number> {
  const parsed: SafetensorsParseFromRepo = await parseSafetensorsMetadata({
    repo: { type: "model", name: "bigscience/bloom" }, hubUrl: "https://huggingface.co", revision: "main", path: "x.safetensors",
    library: "diffusers", fetch, ...(accessToken ? { accessToken } : {}),
  });
  await parseSafetensorsMetadata({ repo: "gpt2", credentials: { accessToken: "hf_x" } });
  const header: SafetensorsFileHeader | undefined = parsed.sharded ? undefined : parsed.header;
  const index: SafetensorsIndexJson | undefined = parsed.sharded ? parsed.index : undefined;
  const headers: SafetensorsShardedHeaders = parsed.sharded ? parsed.headers : {};
  const literal: true | false = parsed.sharded;
  const names: TensorName[] = Object.keys(header ?? {});
  const tensors: TensorInfo[] = names.map((name) => header![name]!).concat(Object.values(headers).map((one) => one["w"]!));
  for (const { dtype, shape, data_offsets: [start, end] } of tensors) {
    const known: Dtype = dtype;
    switch (known) { case "BF16": return shape[0]! + end - start; default: break; }
  }
  const entry = header?.["w"];
  const { parameterCount } = await parseSafetensorsMetadata({ repo: "gpt2", computeParametersCount: true });
  const declared: string | number | undefined = header?.__metadata__?.total_parameters ?? index?.metadata?.total_parameters;
  const files: string[] = parsed.filepaths.concat(Object.keys(index?.weight_map ?? {}));
  return (parameterCount.F32 ?? 0) + (parameterCount["BF16"] ?? 0) + files.length + Number(declared) + Number(literal) + (entry?.shape.length ?? 0) + (parsed.parameterTotal ?? 0);
}`;
const SAME_TYPES = `
import type * as Ours from "hf-meta";
import type * as Theirs from "@huggingface/hub";
type Equal<One, Other> = (<T>() => T extends One ? 1 : 2) extends <T>() => T extends Other ? 1 : 2 ? true : false;
type Dtypes = Equal<Ours.Dtype, Theirs.Dtype>;
type Tensors = Equal<Ours.TensorInfo, Theirs.TensorInfo>;
type Headers = Equal<Ours.SafetensorsFileHeader, Theirs.SafetensorsFileHeader>;
type Indexes = Equal<Ours.SafetensorsIndexJson, Theirs.SafetensorsIndexJson>;
export const equal: [Dtypes, Tensors, Headers, Indexes] = [true, true, true, true];
export const theirs = (parsed: Ours.SafetensorsParseFromRepo): Theirs.SafetensorsParseFromRepo => parsed;
type Parse = typeof Theirs.parseSafetensorsMetadata;
export const replaced = (ours: typeof Ours.parseSafetensorsMetadata): ((params: Parameters<Parse>[0]) => ReturnType<Parse>) => ours;`;

test("a program that is typed with @huggingface/hub compiles with this package", () => {
  mkdirSync(join(project, "node_modules/@huggingface"), { recursive: true });
  for (const name of ["hub", "tasks"]) cpSync(join(own, "node_modules/@huggingface", name), join(project, "node_modules/@huggingface", name), { recursive: true });
  writeFileSync(join(project, "theirs.ts"), DROP_IN("@huggingface/hub"));
  writeFileSync(join(project, "ours.ts"), DROP_IN("hf-meta"));
  writeFileSync(join(project, "same.ts"), SAME_TYPES);
  compile("nodenext", "theirs.ts", "ours.ts", "same.ts");
});
