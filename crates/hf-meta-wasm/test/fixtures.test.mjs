// Every fixture has the document of the command.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readdir, rm } from "node:fs/promises";
import { after, before, test } from "node:test";
import { promisify } from "node:util";

import { HfMetaError, diff, inspect, metadata, verify } from "../pkg/esm/index.js";
import { command, sorted, startHub, writeRepos } from "./support.mjs";

let hub;
let written;
let folder;
before(async () => {
  folder = await writeRepos();
  [hub, written] = [await startHub(), await startHub(folder)];
});
after(async () => {
  hub.stop();
  written.stop();
  await rm(folder, { recursive: true });
});

/** Compares documents with the command, and the codes of sources that fail. `sources` are the arguments of both. */
async function compare({ hubUrl }, sources, args, options, read = inspect) {
  const repos = sources.map((source) => source.text ?? source);
  const expected = await command(hubUrl, ...args, "--json", ...(read === inspect ? ["--no-cache"] : []), ...repos);
  await check(hubUrl, sources, expected, options, read);
}

/** The codes of errors that have the messages of the command. */
const SAME_MESSAGES = new Set(["invalidSource", "malformedHeader", "malformedIndex", "severalSets"]);

async function check(hubUrl, sources, expected, options, read) {
  assert.equal(expected.length, sources.length);
  const wrong = [];
  await Promise.all(sources.map(async (source, at) => {
    const found = await read(source.repo ?? source, { hubUrl, path: source.path, ...options }).catch((error) => {
      assert.ok(error instanceof HfMetaError, String(error.stack));
      return { error: error.code, message: error.message };
    });
    const failed = expected[at].error;
    if (SAME_MESSAGES.has(failed?.code)) assert.equal(found.message, failed.message);
    const [one, other] = [expected[at], found].map((document) => document.error?.code ?? document.error ?? sorted(document));
    if (one !== other) wrong.push(`${source.text ?? source}: ${difference(one, other)}`);
  }));
  assert.deepEqual(wrong, []);
}

/** Shows two texts where they begin to differ. */
function difference(one, other) {
  let at = 0;
  while (at < one.length && one[at] === other[at]) at++;
  return [one, other].map((text) => text.slice(Math.max(0, at - 60), at + 200)).join("\n  ");
}

test("headers and counts", async () => {
  assert.equal(hub.repos.length, 25);
  await compare(hub, hub.repos, [], {});
});
test("summaries with the other sets", () => compare(hub, hub.repos, ["--summary", "--sets"], { summary: true, otherSets: true }));
test("one range per header", () => compare(hub, hub.repos, ["--plan", "prefetch"], { plan: "prefetch" }));
test("memory", () => compare(hub, hub.repos, ["--summary", "--fit", "24GB"], { summary: true, memory: { budget: "24GB" } }));
test("memory in vLLM", () => {
  const memory = { budget: 80e9, engine: "vllm", tp: 2, context: "8k" };
  return compare(hub, hub.repos, ["--summary", "--fit", "80GB", "--engine", "vllm", "--tp", "2", "--context", "8k"], { summary: true, memory });
});
test("metadata", () => compare(hub, hub.repos, ["--metadata", "--no-cache"], {}, metadata));
test("quantized models, mixtures of experts and adapters", async () => {
  assert.ok(written.repos.length > 590, String(written.repos.length));
  await compare(written, written.repos.filter((repo) => repo !== "example/pytorch"), ["--summary"], { summary: true });
});
test("verification", async () => {
  await compare(hub, hub.repos, ["verify"], {}, verify);
  await compare(hub, hub.repos, ["verify", "--all"], { allSets: true }, verify);
  await compare(written, written.repos, ["verify"], {}, verify);
});
test("adapters and their base models", async () => {
  const adapters = written.repos.filter((repo) => repo.startsWith("adapters/"));
  for (const base of ["bases/lora", "bases/lora-bert", "bases/diffusers-unet"]) {
    await compare(written, adapters, ["verify", "--base", base], { base }, verify);
  }
  const kinds = async (base) => (await verify("adapters/lora", { hubUrl: written.hubUrl, base })).findings.map(({ kind }) => kind);
  assert.deepEqual([(await kinds("bases/lora")).includes("missingBase"), (await kinds("bases/lora-bert")).includes("missingBase")], [false, true]);
});
test("files of GGUF and PyTorch by their path", async () => {
  const files = async (hub, repo, path) => {
    const names = (await readdir(path)).filter((name) => /\.(gguf|bin|pt)$/.test(name));
    assert.ok(names.length > 25);
    const sources = names.map((path) => ({ repo, path, text: `hf://${repo}@main/${path}` }));
    await compare(hub, sources, [], { revision: "main" });
    await compare(hub, sources, ["verify"], { revision: "main" }, verify);
  };
  await files(hub, "gguf", new URL("../../../fixtures/gguf", import.meta.url));
  await files(written, "example/pytorch", new URL("../../../fixtures/pytorch", import.meta.url));
});
const PATHS = [
  { repo: "example/Llama-3.2-1B-GGUF", path: "Q4_K_M", text: "hf://example/Llama-3.2-1B-GGUF@main/Q4_K_M" },
  { repo: "CompVis/stable-diffusion-v1-4", path: "unet", text: "hf://CompVis/stable-diffusion-v1-4@main/unet" },
  { repo: "gpt2", path: "none", text: "hf://gpt2@main/none" },
  { repo: "bigscience/bloom", path: "model_00001-of-00072.safetensors", text: "hf://bigscience/bloom@main/model_00001-of-00072.safetensors" },
  { repo: "gpt2", path: "missing.safetensors", text: "hf://gpt2@main/missing.safetensors" },
];
test("quantizations, folders and revisions", async () => {
  await compare(hub, PATHS, [], { revision: "main" });
  await compare(hub, PATHS, ["verify"], { revision: "main" }, verify);
});
test("missing repositories and revisions", () => compare(hub, ["org/none", "gpt2@none", "a//b"], [], {}));
/** A Python with the module of this commit. `.ci/npm` sets it. */
const python = process.env.HF_META_PYTHON;
test("Python", { skip: !python && "HF_META_PYTHON is not set: Python was not compared" }, async () => {
  const script = `
import sys, hf_meta
for repo in sys.argv[1:]:
    try:
        print(hf_meta.inspect(repo, headers=True, cache=False).to_json())
    except hf_meta.HfMetaError as error:
        print('{"error":"%s"}' % error.code)`;
  for (const { hubUrl, repos } of [hub, written]) {
    const env = { ...process.env, HF_ENDPOINT: hubUrl, HF_TOKEN: "" };
    const { stdout } = await promisify(execFile)(python, ["-c", script, ...repos], { env, maxBuffer: 1 << 30 });
    const expected = stdout.trim().split("\n").map((line) => JSON.parse(line));
    await check(hubUrl, repos, expected, {}, inspect);
  }
});
test("differences", async () => {
  const pairs = [["bigscience/bloom-560m", "bigscience/bloom-3b"], ["roberta-base", "roberta-large"], ["gpt2", "gpt2"]];
  for (const [before, after] of pairs) {
    const [expected] = await command(hub.hubUrl, "diff", "--json", "--no-cache", before, after);
    assert.equal(sorted(await diff(before, after, { hubUrl: hub.hubUrl })), sorted(expected));
  }
});
