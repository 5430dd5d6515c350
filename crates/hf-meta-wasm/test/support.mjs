// A local Hub, the command, and the comparison of their documents.
import { execFile, spawn } from "node:child_process";
import { cp, mkdir, mkdtemp, readFile, readdir, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

const root = new URL("../../..", import.meta.url).pathname;
const built = `${process.env.CARGO_TARGET_DIR ?? `${root}/target`}/debug`;

/** Starts a local Hub. Returns its URL, the names of its repositories, and a function that ends it. */
export async function startHub(folder = `${root}/fixtures`, ...options) {
  // Both outputs in one pipe, so that all names are read before the URL.
  const hub = spawn("sh", ["-c", 'exec "$0" "$@" 2>&1', `${built}/examples/local_hub`, folder, ...options], { stdio: ["pipe", "pipe", "inherit"] });
  const repos = [];
  for await (const line of createInterface({ input: hub.stdout })) {
    const hubUrl = /HF_ENDPOINT=(\S+)/.exec(line)?.[1];
    if (hubUrl) return { hubUrl, repos, stop: () => hub.kill() };
    repos.push(line);
  }
}

/** Runs the command. Returns its documents, one per line. */
export function command(hubUrl, ...args) {
  const env = { ...process.env, HF_ENDPOINT: hubUrl, HF_TOKEN: "" };
  return new Promise((resolve) => {
    execFile(`${built}/hf-meta`, args, { env, maxBuffer: 1 << 30 }, (_error, stdout) => {
      resolve(stdout.split("\n").filter(Boolean).map((line) => JSON.parse(line)));
    });
  });
}

/** Returns a document with sorted keys, without the counters of its requests. */
export function sorted(document) {
  const { fetch, ...rest } = document;
  const sort = (value) =>
    Array.isArray(value) ? value.map(sort)
    : value && typeof value === "object" ? Object.fromEntries(Object.keys(value).sort().map((key) => [key, sort(value[key])]))
    : value;
  return JSON.stringify(sort({ ...rest, weightBytes: fetch?.weightBytes }));
}

/** The sizes of elements in bytes. */
const SIZES = { BOOL: 1, U8: 1, I8: 1, U16: 2, I16: 2, F16: 2, BF16: 2, U32: 4, I32: 4, F32: 4, U64: 8, I64: 8, F64: 8, F4: 0.5, C64: 8 };

/** Writes a repository whose weights are a table of tensors. */
async function writeRepo(repo, weights, { tensors = [], metadata, files = {} }) {
  const header = metadata ? { __metadata__: metadata } : {};
  let end = 0;
  for (const { name, dtype, shape } of tensors) {
    const bytes = shape.reduce((product, side) => product * side, SIZES[dtype] ?? 1);
    header[name] = { dtype, shape, data_offsets: [end, (end += bytes)] };
  }
  const json = Buffer.from(JSON.stringify(header));
  const prefix = Buffer.alloc(8);
  prefix.writeBigUInt64LE(BigInt(json.length));
  await mkdir(repo, { recursive: true });
  await writeFile(`${repo}/${weights}.safetensors`, Buffer.concat([prefix, json]));
  await writeFile(`${repo}/hub.json`, JSON.stringify({ sizes: { [`${weights}.safetensors`]: 8 + json.length + end } }));
  for (const [file, content] of Object.entries(files)) await writeFile(`${repo}/${file}`, JSON.stringify(content));
}

/** Writes the fixtures that are tables of tensors, and the files of PyTorch, as repositories. Returns their folder. */
export async function writeRepos() {
  const folder = await mkdtemp(join(tmpdir(), "hf-meta-"));
  for (const kind of ["quantized", "moe", "adapters"]) {
    for (const file of await readdir(`${root}/fixtures/${kind}`)) {
      const { base, config, files, ...fixture } = JSON.parse(await readFile(`${root}/fixtures/${kind}/${file}`, "utf8"));
      const name = file.replace(/\.json$/, "");
      const [weights, settings] = kind === "adapters" ? ["adapter_model", "adapter_config.json"] : ["model", "config.json"];
      await writeRepo(`${folder}/${kind}/${name}`, weights, { ...fixture, files: { ...(config && { [settings]: config }), ...files } });
      if (base) await writeRepo(`${folder}/bases/${name}`, "model", { tensors: Object.entries(base).map(([name, shape]) => ({ name, dtype: "F32", shape })) });
    }
  }
  await cp(`${root}/fixtures/pytorch`, `${folder}/example/pytorch`, { recursive: true });
  await writeFile(`${folder}/example/pytorch/hub.json`, "{}");
  return folder;
}
