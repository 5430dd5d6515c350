// A client that calls share, the names of repositories, and what errors say.
import assert from "node:assert/strict";
import { inspect as nodeInspect } from "node:util";
import { test } from "node:test";

import { HfMetaError, Hub, diff, inspect, inspectHeaders, open, parseSource, verify } from "../pkg/esm/index.js";
import { GOOD, serveFiles } from "./support.mjs";

const FILES = { "model.safetensors": GOOD };
const REJECTED = { "x-error-message": "Invalid credentials in Authorization header" };

/** Rejects each request with the token, as the Hub does, and each without one if `status` is set. */
const rejecting = (status, headers = {}) => ({ headers: { authorization } }, response) =>
  authorization ? response.writeHead(401, REJECTED).end() : status && response.writeHead(status, headers).end();

test("calls with one client share its limit of requests", () => serveFiles(FILES, null, async ({ hubUrl }) => {
  let [running, most] = [0, 0];
  const counted = async (...request) => {
    most = Math.max(most, ++running);
    const response = await fetch(...request);
    await new Promise((resolve) => setTimeout(resolve, 5));
    running--;
    return response;
  };
  const hub = new Hub({ hubUrl, concurrency: 3, fetch: counted });
  await Promise.all(Array.from({ length: 12 }, (_, at) => inspect(`org/name${at}`, { hub })));
  assert.deepEqual([most, running], [3, 0]);
}));

test("after 429, all calls of a client pause, and no other client", () => serveFiles(FILES, (request, response, number) =>
  number === 1 && response.writeHead(429, { "retry-after": "1" }).end(), async ({ hubUrl }, requests) => {
  const [hub, other] = [new Hub({ hubUrl }), new Hub({ hubUrl })];
  const started = performance.now();
  const first = inspect("org/first", { hub });
  while (requests.length < 1) await new Promise((resolve) => setTimeout(resolve, 5));
  await inspect("org/other", { hub: other });
  const before = requests.length;
  assert.ok(performance.now() - started < 900, "the other client does not wait");
  await new Promise((resolve) => setTimeout(resolve, 50));
  const second = inspect("org/second", { hub });
  await new Promise((resolve) => setTimeout(resolve, 300));
  assert.equal(requests.length, before, "no request during the pause");
  await Promise.all([first, second]);
  assert.ok(performance.now() - started > 950);
}));

test("a pause that is too long fails at once, with the seconds that are left", () => serveFiles(FILES,
  (_request, response) => response.writeHead(429, { "retry-after": "3600" }).end(), async ({ hubUrl }, requests) => {
    const hub = new Hub({ hubUrl });
    await assert.rejects(inspect("org/name", { hub }), { code: "rateLimited", retryAfter: 3600 });
    await assert.rejects(inspect("org/other", { hub }), ({ code, retryAfter }) => code === "rateLimited" && retryAfter > 3500);
    assert.equal(requests.length, 1);
  }));

test("a call that waits for another one can be aborted", () => serveFiles(FILES, (request) => request.url.includes("org/slow"), async ({ hubUrl }) => {
  const hub = new Hub({ hubUrl, concurrency: 1, timeout: 1000, retries: 0 });
  const slow = inspect("org/slow", { hub });
  const controller = new AbortController();
  const waiting = inspect("org/name", { hub, signal: controller.signal });
  setTimeout(() => controller.abort(new Error("stop")), 50);
  await assert.rejects(waiting, { message: "stop" });
  await assert.rejects(slow, { code: "timeout" });
  assert.equal((await inspect("org/name", { hub })).parameterTotal, 2, "the place of the aborted call is free");
}));

test("a rejected token does not hide public repositories", () => serveFiles(FILES, rejecting(), async ({ hubUrl }, requests) => {
  const hub = new Hub({ hubUrl, accessToken: "hf_old" });
  assert.equal((await inspect("org/name", { hub })).parameterTotal, 2);
  assert.equal(hub.rejectedToken.code, "rejectedToken");
  await inspect("org/name", { hub });
  assert.equal(requests.filter(({ headers }) => headers.authorization).length, 1, "it is sent once");
  assert.equal((await inspect("org/name", { hubUrl, accessToken: "hf_old" })).parameterTotal, 2);
}));

test("a repository that the rejected token could open is an error of the token", async () => {
  for (const [status, headers] of [[401, {}], [404, { "x-error-code": "RepoNotFound" }], [403, { "x-error-code": "GatedRepo" }]]) {
    await serveFiles(FILES, rejecting(status, headers), async ({ hubUrl }) => {
      await assert.rejects(inspect("org/name", { hubUrl, accessToken: "hf_old" }), { code: "rejectedToken", hint: /create a new token/ });
    });
  }
});

test("settings of the client and of the call do not mix", () => serveFiles(FILES, null, async ({ hubUrl }) => {
  const hub = new Hub({ hubUrl });
  await assert.rejects(inspect("org/name", { hub, accessToken: "hf_x" }), { code: "invalidOption", message: /`accessToken`.*`hub`/ });
}));

test("names and URLs of pages are parsed as by the command", async () => {
  const cases = {
    " bigscience/bloom ": ["bigscience/bloom", "main", undefined],
    "org/name@v1": ["org/name", "v1", undefined],
    "org/name-GGUF:Q4_K_M": ["org/name-GGUF", "main", "Q4_K_M"],
    "https://huggingface.co/org/name/": ["org/name", "main", undefined],
    "huggingface.co/org/name/tree/v1/7b": ["org/name", "v1", "7b"],
    "HF.co/org/name/blob/main/x.safetensors?download=true": ["org/name", "main", "x.safetensors"],
    "https://huggingface.co/org/name/blob/main/README.md": ["org/name", "main", undefined],
    "https://huggingface.co/datasets/org/name/resolve/main/a%20b.safetensors": ["datasets/org/name", "main", "a b.safetensors"],
    "https://huggingface.co/org/name/discussions/3": ["org/name", "refs/pr/3", undefined],
    "https://huggingface.co/org/x?show_file_info=x-Q8_0.gguf": ["org/x", "main", "x-Q8_0.gguf"],
    "http://127.0.0.1:9/hub/org/name/tree/main": ["org/name", "main", undefined],
    "hf://org/name@refs%2Fpr%2F1/7b": ["org/name", "refs/pr/1", "7b"],
  };
  for (const [text, expected] of Object.entries(cases)) {
    const { source, repo, revision, path } = await parseSource(text, { hubUrl: "http://127.0.0.1:9/hub" });
    assert.deepEqual([repo, revision, path ?? undefined], expected, text);
    const again = await parseSource(source);
    assert.deepEqual([again.repo, again.revision, again.path], [repo, revision, path], source);
  }
  for (const text of ["./folder", "~/folder", "x.safetensors", "https://example.org/x.safetensors", "hf://buckets/a/b", "s3://a/b", "a//b", "https://"]) {
    await assert.rejects(parseSource(text), { code: "invalidSource" }, text);
  }
});

test("errors of options name the option, and have no hint about names", async () => {
  for (const [options, message] of [[{ revision: 5 }, /^`revision` is not text/], [{ revision: "" }, /^`revision`: /], [{ path: "../x" }, /^`path`: /]]) {
    const error = await inspect("org/name", options).catch((error) => error);
    assert.deepEqual([error.code, error.hint], ["invalidSource", undefined]);
    assert.match(error.message, message);
  }
  for (const options of [null, 5]) await assert.rejects(inspect("org/name", options), { code: "invalidOption", message: /not an object/ });
  for (const text of ["./folder", "folder/"]) await assert.rejects(inspect(text), { code: "invalidSource", message: /`{ files }`/ });
});

test("functions read pasted URLs, and options replace their parts", () => serveFiles({ "7b/x.safetensors": GOOD, ...FILES }, null, async ({ hubUrl }, requests) => {
  const read = async (text, options) => (await inspect(text, { hubUrl, ...options })).filepaths;
  assert.deepEqual(await read("https://huggingface.co/org/name/tree/main/7b"), ["7b/x.safetensors"]);
  assert.deepEqual(await read(`${hubUrl}/org/name/blob/main/7b/x.safetensors`), ["7b/x.safetensors"]);
  assert.deepEqual(await read("https://huggingface.co/org/name/tree/main/7b", { path: "model.safetensors" }), ["model.safetensors"]);
  await read("https://huggingface.co/org/name/tree/v1", { revision: "v2" });
  assert.match(requests.at(-4).url + requests.at(-3).url, /revision\/v2/);
  assert.equal((await verify("https://huggingface.co/org/name", { hubUrl })).valid, true);
}));

test("errors have their class, a hint, and the name of the repository", () => serveFiles({}, (request, response) => {
  const [, code] = /org\/(\w+)/.exec(request.url) ?? [];
  return code && response.writeHead(code === "RepoNotFound" ? 404 : 403, { "x-error-code": code }).end();
}, async ({ hubUrl }) => {
  for (const [name, code] of [["org/RepoNotFound", "repoNotFound"], ["org/GatedRepo", "gated"]]) {
    const error = await inspect(name, { hubUrl }).catch((error) => error);
    assert.ok(error instanceof HfMetaError && error.constructor.name === "HfMetaError");
    assert.equal(error.code, code);
    assert.ok(error.message.includes(`\`${name}\``), error.message);
    assert.ok(error.hint.length > 10);
    assert.match(error.stack, /^HfMetaError: repository/);
    assert.match(nodeInspect(error), /^HfMetaError: repository[^]*code: '/);
    assert.equal(Object.prototype.toString.call(error), "[object Error]");
  }
  await assert.rejects(inspect("org/name", { hubUrl: "http://127.0.0.1:9", retries: 0 }), ({ code, message }) => code === "network" && message.includes("org/name"));
}));

test("a checkpoint is freed twice, and then says so", () => serveFiles(FILES, null, async ({ hubUrl }) => {
  const [checkpoint, other] = [await open("org/name", { hubUrl, memory: {} }), await open("org/name", { hubUrl })];
  assert.throws(() => checkpoint.memory({ context: "many" }), { code: "invalidOption" });
  assert.equal(checkpoint.memory({ context: 10 }).context, 10);
  checkpoint.free();
  checkpoint.free();
  assert.throws(() => other.memory({}), { message: /option `memory` of `open`/ });
  for (const use of [() => checkpoint.json(), () => checkpoint.tree(), () => checkpoint.memory({}), () => checkpoint.diff(other), () => other.diff(checkpoint)]) {
    assert.throws(use, { name: "HfMetaError", code: "invalidOption", message: "the checkpoint was freed" });
  }
  other.free();
}));

test("every function reads local files", () => serveFiles(FILES, null, async ({ hubUrl }) => {
  const local = { files: { "model.safetensors": new Blob([GOOD]) }, name: "mine" };
  const { source, parameterTotal } = await inspect(local);
  assert.deepEqual([source, parameterTotal], ["mine", 2]);
  assert.deepEqual(await inspectHeaders(local.files, { name: "mine", summary: true }).then(({ parameterTotal }) => parameterTotal), 2);
  assert.equal((await verify(local)).valid, true);
  assert.deepEqual((await diff(local, "org/name", { hubUrl })).changes, []);
}));
