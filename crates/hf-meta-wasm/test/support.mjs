// A local Hub, the command, and the comparison of their documents.
import { execFile, spawn } from "node:child_process";
import { createServer } from "node:http";
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

/** Starts the badge service. Returns its URL, and a function that ends it. */
export async function startService(hubUrl, ...options) {
  const env = { PATH: process.env.PATH, HF_ENDPOINT: hubUrl, HF_META_CACHE: "off" };
  const service = spawn(`${built}/hf-meta`, ["serve", "--listen", "127.0.0.1:0", ...options], { env, stdio: ["ignore", "pipe", "inherit"] });
  for await (const line of createInterface({ input: service.stdout })) {
    return { url: line.replace("listening on ", ""), stop: () => service.kill("SIGKILL") };
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

/** Runs the command. Returns its exit status. */
export function exitStatus(hubUrl, ...args) {
  const env = { ...process.env, HF_ENDPOINT: hubUrl, HF_TOKEN: "" };
  return new Promise((resolve) => {
    execFile(`${built}/hf-meta`, args, { env, maxBuffer: 1 << 30 }, (error) => resolve(error?.code ?? 0));
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

const SHA = "c".repeat(40);

/** Returns a safetensors file: its header, and zeros as data. */
export function file(header, length) {
  const json = Buffer.from(typeof header === "string" ? header : JSON.stringify(header));
  const prefix = Buffer.alloc(8);
  prefix.writeBigUInt64LE(BigInt(length ?? json.length));
  return Buffer.concat([prefix, json, Buffer.alloc(8)]);
}

export const GOOD = file({ w: { dtype: "F32", shape: [2], data_offsets: [0, 8] } });

/** Serves a repository with these files. `answer` may respond to a request first. */
export async function serveFiles(files, answer, run) {
  const requests = [];
  const server = createServer((request, response) => {
    requests.push(request);
    if (answer?.(request, response, requests.length)) return;
    const path = decodeURIComponent(request.url.split("?")[0]);
    const json = (value) => response.setHeader("content-type", "application/json").end(JSON.stringify(value));
    if (path.includes("/revision/")) return json({ id: "org/name", sha: SHA });
    if (path.includes("/tree/")) return json(Object.entries(files).map(([path, { length }]) => ({ type: "file", path, size: length })));
    const found = files[path.split(`/resolve/${SHA}/`)[1]];
    if (!found) return response.writeHead(404, { "x-error-code": "EntryNotFound" }).end();
    const range = /bytes=(\d+)-(\d+)/.exec(request.headers.range)?.slice(1).map(Number);
    if (!range) return response.writeHead(200, { "content-length": found.length }).end(found);
    if (range[0] >= found.length) return response.writeHead(416, { "content-range": `bytes */${found.length}` }).end();
    const part = found.subarray(range[0], range[1] + 1);
    const last = range[0] + part.length - 1;
    response.writeHead(206, { "content-range": `bytes ${range[0]}-${last}/${found.length}` }).end(part);
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  try {
    return await run({ hubUrl: `http://127.0.0.1:${server.address().port}`, retries: 1, timeout: 2000 }, requests);
  } finally {
    server.closeAllConnections();
    server.close();
  }
}
