// Servers that fail, and files that are invalid: an error with a code, and never a hang.
import assert from "node:assert/strict";
import { test } from "node:test";

import { HfMetaError, inspect, inspectHeaders, metadata, open, parseSafetensorsMetadata, verify } from "../pkg/esm/index.js";
import { GOOD, file, serveFiles as serve } from "./support.mjs";

const weights = (bytes) => ({ "model.safetensors": bytes });
const described = (texts) => weights(file({ __metadata__: texts, w: { dtype: "F32", shape: [2], data_offsets: [0, 8] } }));
/** An image of one pixel. */
const GIF = "R0lGODlhAQABAAAAACwAAAAAAQABAAACADs=";
const isRange = (request) => request.headers.range !== undefined;
const status = (code, headers = {}) => (_request, response) => response.writeHead(code, headers).end("x");
const ranges = (answer) => (request, response, number) => isRange(request) && (answer(request, response, number), true);

/** Files, what the server does instead, and the code of the error. */
const CASES = {
  "a header over the cap": [weights(file("{}", 30_000_000)), null, "malformedHeader"],
  "a header beyond the file": [weights(file("{}", 20_000)), null, "malformedHeader"],
  "JSON that nests deeply": [weights(file("[".repeat(100_000))), null, "malformedHeader"],
  "JSON with wrong types": [weights(file('{"w":{"dtype":1,"shape":"x","data_offsets":null}}')), null, "malformedHeader"],
  "an empty file": [weights(Buffer.alloc(0)), null, "malformedHeader"],
  "an index that leaves its folder": [
    { "model.safetensors.index.json": Buffer.from('{"weight_map":{"w":"../other.safetensors"}}') }, null, "malformedIndex"],
  // All requests fail, and only the first failure is the result.
  "missing shards": [{ "model.safetensors.index.json": Buffer.from(JSON.stringify({
    weight_map: Object.fromEntries(Array.from({ length: 20 }, (_, at) => [`w${at}`, `${at}.safetensors`])),
  })) }, null, "missingShards"],
  "no weights": [{ "README.md": Buffer.from("x") }, null, "noWeights"],
  "a web page": [weights(GOOD), ranges((_, response) => response.writeHead(200, { "content-type": "text/html" }).end("x")), "network"],
  "another range": [weights(GOOD), ranges((_, response) =>
    response.writeHead(206, { "content-range": `bytes 1-8/${GOOD.length}` }).end(GOOD.subarray(1, 9))), "network"],
  "a size beyond all numbers": [weights(GOOD), ranges((request, response) => {
    const [first, last] = /(\d+)-(\d+)/.exec(request.headers.range).slice(1).map(Number);
    response.writeHead(206, { "content-range": `bytes ${first}-${last}/${"9".repeat(400)}` }).end(GOOD.subarray(first, last + 1));
  }), "malformedHeader"],
  "no `Content-Range`": [weights(GOOD), ranges((_, response) => response.writeHead(206).end(GOOD.subarray(0, 7))), "network"],
  "a compressed range": [weights(GOOD), ranges((_, response) => response.writeHead(206, {
    "content-range": `bytes 0-7/${GOOD.length}`, "content-encoding": "br" }).end("x")), "network"],
  "a whole file of unknown length": [weights(GOOD), ranges((_, response) => {
    response.writeHead(200);
    response.write(GOOD);
    response.end();
  }), "network"],
  "a lost connection": [weights(GOOD), ranges((request) => request.socket.destroy()), "network"],
  "a body that never comes": [weights(GOOD), ranges(() => undefined), "timeout"],
  "a gated repository": [weights(GOOD), ranges(status(401, { "x-error-code": "GatedRepo" })), "gated"],
  "a rejected token": [weights(GOOD), status(401, { "x-error-message": "Invalid credentials in Authorization header" }), "rejectedToken"],
  "no permission": [weights(GOOD), status(403), "forbidden"],
  "a rate limit that ends too late": [weights(GOOD), status(429, { "retry-after": "3600" }), "rateLimited"],
  "a server error": [weights(GOOD), status(500), "refused"],
  "an answer that is not JSON": [weights(GOOD), status(200), "malformedListing"],
  "an answer without a commit": [weights(GOOD), (_, response) => response.end("{}"), "malformedListing"],
  "a listing without an end": [weights(GOOD), (request, response) => request.url.includes("/tree/")
    && response.setHeader("link", '<http://x/?recursive=true&c=1>; rel="next"').end("[]"), "malformedListing"],
};

for (const [name, [files, answer, code]] of Object.entries(CASES)) {
  test(`${name}: ${code}`, { timeout: 60_000 }, () => serve(files, answer, async (options) => {
    await assert.rejects(inspect("org/name", options), (error) => {
      assert.ok(error instanceof HfMetaError, error.stack);
      assert.equal(error.code, code, error.message);
      return true;
    });
  }));
}

test("a transient failure is repeated", () => serve(weights(GOOD), (_request, response, number) =>
  number === 2 && response.writeHead(503).end(), async (options, requests) => {
  const { parameterTotal, fetch } = await inspect("org/name", options);
  assert.deepEqual([parameterTotal, fetch.requests, requests.length], [2, 5, 5]);
}));

test("a server without ranges sends the whole file", () => serve(weights(GOOD), (request) => {
  delete request.headers.range;
}, async (options) => {
  assert.equal((await inspect("org/name", options)).parameterTotal, 2);
}));

test("the token goes to the Hub only", () => serve(weights(GOOD), null, (cdn, received) =>
  serve(weights(GOOD), (request, response) => isRange(request)
    && response.writeHead(302, { location: cdn.hubUrl + request.url }).end(), async (options, requests) => {
    await inspect("org/name", { ...options, accessToken: "hf_x" });
    assert.ok(requests.every((request) => request.headers.authorization === "Bearer hf_x"));
    assert.equal(received.length, 2);
    assert.ok(received.every((request) => request.headers.authorization === undefined));
  })));

const SHARDS = Object.fromEntries([1, 2].map((number) => [`model-0000${number}-of-00002.safetensors`, GOOD]));

// The code of the default reason is a number.
test("an aborted call rejects with the reason of its signal", { timeout: 10_000 }, () =>
  serve(SHARDS, ranges(() => undefined), async (options) => {
    for (const read of [inspect, verify]) for (const reason of [new Error("stop"), undefined, null, 5, Symbol("stop"), { code: {}, message: 1 }]) {
      const controller = new AbortController();
      setTimeout(() => controller.abort(reason), 50);
      const call = read("org/name", { ...options, timeout: 60_000, signal: controller.signal });
      assert.equal(await call.then(() => "read", (found) => found), controller.signal.reason);
    }
    await assert.rejects(inspect("org/name", { ...options, signal: AbortSignal.abort(new Error("no")) }), /^Error: no$/);
    await assert.rejects(inspect("org/name", { ...options, signal: AbortSignal.timeout(50) }), { name: "TimeoutError" });
  }));

test("one signal serves many requests without a warning", async () => {
  const shards = Array.from({ length: 40 }, (_, at) => `model-${String(at + 1).padStart(5, "0")}-of-00040.safetensors`);
  const files = Object.fromEntries(shards.map((shard, at) => [shard, file({ [`w${at}`]: { dtype: "F32", shape: [2], data_offsets: [0, 8] } })]));
  const warnings = [];
  process.on("warning", (warning) => warnings.push(warning));
  const { signal } = new AbortController();
  // Each shard fails once, so that many requests wait for their retry, and others for room.
  const failed = new Set();
  const once = (request, response) => isRange(request) && !failed.has(request.url) && response.writeHead(failed.add(request.url) && 503).end();
  await serve(files, once, (options) => Promise.all([1, 2, 3].map(() => inspect("org/name", { ...options, concurrency: 20, retries: 4, timeout: 60_000, signal }))));
  assert.equal(failed.size, 40);
  assert.deepEqual(warnings, []);
});

test("a proxy that removes `Content-Range` is read if the length proves the range, and named if not", async () => {
  const answer = (cut) => ranges((request, response) => {
    const [first, last] = /(\d+)-(\d+)/.exec(request.headers.range).slice(1).map(Number);
    const part = GOOD.subarray(first, last + 1 - cut);
    response.writeHead(206, { server: "Artifactory/7.98.9", "content-length": part.length }).end(part);
  });
  await serve(weights(GOOD), answer(0), async (options) => {
    for (const plan of ["exact", "prefetch"]) assert.equal((await inspect("org/name", { ...options, plan })).parameterTotal, 2);
  });
  await serve(weights(GOOD), answer(1), (options) => assert.rejects(inspect("org/name", options), (error) => {
    assert.match(error.message, /`Content-Range` is missing.*a proxy \(`server: Artifactory\/7.98.9`\)/);
    return error.code === "network";
  }));
});

test("a single file reports its progress in bytes", () => serve(weights(GOOD), null, async (options) => {
  const told = [];
  await inspect("org/name", { ...options, onProgress: (progress) => told.push(progress) });
  assert.deepEqual(told.map(({ done, total }) => [done, total]), [[0, 1], [1, 1]]);
  assert.ok(0 < told[0].bytesRead && told[0].bytesRead < told[1].bytesRead, JSON.stringify(told));
}));

test("no more requests are in flight than allowed", () => {
  const shards = Array.from({ length: 20 }, (_, at) => `model-${String(at + 1).padStart(5, "0")}-of-00020.safetensors`);
  const files = Object.fromEntries(shards.map((shard, at) => [shard, file({ [`w${at}`]: { dtype: "F32", shape: [2], data_offsets: [0, 8] } })]));
  let [active, most, done] = [0, 0, []];
  return serve(files, (_request, response) => {
    most = Math.max(most, ++active);
    response.on("close", () => active--);
  }, async (options) => {
    const onProgress = (progress) => done.push(`${progress.done}/${progress.total}`);
    const { parameterTotal } = await inspect("org/name", { ...options, concurrency: 3, onProgress });
    assert.equal(parameterTotal, 40);
    assert.ok(most <= 3, String(most));
    assert.deepEqual([done.length, done.at(-1)], [20, "20/20"]);
  });
});

test("verify reports files that cannot be read", () => serve({ ...SHARDS, ...weights(file("[]")) }, null, async (options) => {
  const { valid, findings } = await verify("org/name", options);
  assert.deepEqual([valid, findings.map(({ kind }) => kind)], [false, ["malformedHeader"]]);
  const all = await verify("org/name", { ...options, allSets: true });
  assert.deepEqual(all.sets.map(({ path, valid }) => [path, valid]),
    [["model.safetensors", false], ["model-*-of-00002.safetensors", false]]);
}));

test("headers can be counted without requests", async () => {
  const options = { name: "mine", summary: true };
  assert.equal((await inspectHeaders(weights(GOOD), options)).parameterTotal, 2);
  assert.equal((await inspectHeaders(weights(new Blob([GOOD])), options)).source, "mine");
  await assert.rejects(inspectHeaders(weights(new Blob([GOOD, "x"])), options), { code: "malformedHeader" });
  await assert.rejects(inspectHeaders({}, options), { code: "noWeights" });
  const huge = file({ w: { dtype: "U8", shape: [2 ** 54], data_offsets: [0, 2 ** 54] } });
  await assert.rejects(inspectHeaders(weights(huge), options), { code: "tooLarge" });
  await assert.rejects(inspectHeaders(weights(GOOD), { ...options, memory: { engine: "none" } }), { code: "invalidOption" });
  await assert.rejects(inspectHeaders(weights("text"), options), { code: "invalidOption" });
});

test("options that cannot work are errors, which contain no token", () => serve(weights(GOOD), null, async ({ hubUrl }, requests) => {
  const cases = [{ accessToken: "hf_secret\nx" }, { accessToken: "hf_secret\u{2028}" }, { hubUrl: "hub" }, { memory: { tp: 2 } },
    { concurrency: NaN }, { concurrency: 0 }, { retries: -1 }, { timeout: -1 }, { plan: "hub" }, { signal: 5 }, { hub: 5, hubUrl: undefined }, { accessToken: 5 }, { maxHeaderBytes: 1e9 }, { maxHeaderBytes: -1 }];
  for (const options of cases) {
    await assert.rejects(inspect("org/name", { hubUrl, ...options }), (error) => {
      assert.equal(error.code, "invalidOption", JSON.stringify(options));
      return !`${error.stack} ${error.cause}`.includes("secret");
    });
  }
  for (const [repo, options] of [[5], [undefined], [{ name: 5 }], [{ type: "foo", name: "a" }], ["a/b", { revision: 5 }], ["a/b", { path: 5 }]]) {
    await assert.rejects(inspect(repo, { hubUrl, ...options }), { code: "invalidSource" }, JSON.stringify([repo, options]));
  }
  assert.ok(requests.every(({ headers }) => headers.authorization === undefined));
}));

test("an exception of onProgress rejects the call", () => serve(weights(GOOD), null, async (options) => {
  const thrown = new Error("mine");
  const call = inspect("org/name", { ...options, onProgress() { throw thrown; } });
  await assert.rejects(call, (error) => error === thrown);
  const empty = verify("org/name", { ...options, onProgress() { throw null; } });
  assert.equal(await empty.then(() => "read", (error) => error), null);
}));

test("a larger header is read if it is asked for", async () => {
  const names = Array.from({ length: 400_000 }, (_, at) => [`${"x".repeat(20)}${at}`, { dtype: "F32", shape: [0], data_offsets: [0, 0] }]);
  const large = file(Object.fromEntries(names)).subarray(0, -8);
  assert.ok(large.length > 25_000_000);
  // The file is valid, so its author has nothing to repair.
  await assert.rejects(inspectHeaders(weights(new Blob([large])), { summary: true }), { code: "tooLarge", hint: /`maxHeaderBytes`/ });
  await inspectHeaders(weights(new Blob([large])), { summary: true, maxHeaderBytes: 100_000_000 });
});

test("huggingface.js has the same arguments", () => serve(weights(GOOD), null, async ({ hubUrl }) => {
  const repo = { type: "model", name: "org/name" };
  const counted = await parseSafetensorsMetadata({ repo, hubUrl, computeParametersCount: true, credentials: { accessToken: "hf_x" } });
  assert.deepEqual([counted.sharded, counted.parameterCount, counted.parameterTotal], [false, { F32: 2 }, 2]);
  assert.deepEqual(counted.header, { w: { dtype: "F32", shape: [2], data_offsets: [0, 8] } });
  const plain = await parseSafetensorsMetadata({ repo: "org/name", hubUrl, path: "model.safetensors", revision: "main" });
  assert.equal("parameterCount" in plain, false);
}));

test("metadata are texts, typed fields and an image", () => {
  const thumbnail = `data:image/png;base64,${GIF}`;
  const texts = {
    "modelspec.title": "<b>A title</b>", "modelspec.resolution": "1024x768", "modelspec.tags": "a, b", "modelspec.thumbnail": thumbnail,
    "modelspec.timestep_range": "0,18446744073709551615", ss_tag_frequency: "[".repeat(10_000), "a\n\u001b[2J": "\u202e",
  };
  return serve(described(texts), null, async (options) => {
    const { files: [found] } = await metadata("org/name", options);
    assert.deepEqual(found.metadata, texts);
    const { missing, ...spec } = found.modelSpec;
    const image = { mediaType: "image/gif", width: 1, height: 1, bytes: 26 };
    assert.deepEqual(spec, { title: "<b>A title</b>", resolution: { width: 1024, height: 768 }, tags: ["a", "b"], thumbnail: image });
    assert.deepEqual([missing, found.thumbnail], [["sai_model_spec", "architecture", "implementation"], image]);
    const checkpoint = await open("org/name", options);
    assert.equal(await checkpoint.thumbnail(), `data:image/gif;base64,${GIF}`);
    checkpoint.free();
  });
});

test("thumbnails that are no images are not returned", async () => {
  for (const url of ["data:image/svg+xml;base64,PHN2Zy8+", "data:text/html,<script>1</script>", "https://example.org/x.png", "data:image/png;base64,%%%", ""]) {
    await serve(described({ "modelspec.thumbnail": url }), null, async (options) => {
      const checkpoint = await open("org/name", options);
      assert.equal(await checkpoint.thumbnail(), undefined, url);
      assert.equal((await checkpoint.metadata()).files[0].thumbnail, null, url);
    });
  }
});

test("100,000 keys are read in seconds", { timeout: 60_000 }, () => {
  const entries = Array.from({ length: 100_000 }, (_, at) => [`key ${at}`, String(at)]);
  return serve(described(Object.fromEntries(entries)), null, async (options) => {
    const { files: [found] } = await metadata("org/name", options);
    assert.equal(Object.keys(found.metadata).length, 100_000);
    assert.equal(found.modelSpec, null);
  });
});

test("without headers there are no metadata", () => serve(weights(GOOD), null, async (options) => {
  const checkpoint = await open("org/name", { ...options, summary: true });
  await assert.rejects(checkpoint.metadata(), { code: "invalidOption", message: "the headers were not kept" });
  assert.equal(await checkpoint.thumbnail(), undefined);
}));
