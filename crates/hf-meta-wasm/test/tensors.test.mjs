// The data of tensors, as typed arrays, from a Hub and from local files.
import assert from "node:assert/strict";
import { mkdir, mkdtemp, readFile, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";

import { readTensors } from "../pkg/esm/index.js";
import { startHub } from "./support.mjs";

/** The types of safetensors, their bits, and the arrays that hold them. */
const TYPES = {
  F64: [64, Float64Array], C64: [64, Float32Array], I64: [64, BigInt64Array], U64: [64, BigUint64Array], F32: [32, Float32Array],
  I32: [32, Int32Array], U32: [32, Uint32Array], F16: [16, Uint16Array], BF16: [16, Uint16Array], I16: [16, Int16Array],
  U16: [16, Uint16Array], BOOL: [8, Uint8Array], U8: [8, Uint8Array], I8: [8, Int8Array], F8_E4M3: [8, Uint8Array],
  F8_E5M2: [8, Uint8Array], F8_E8M0: [8, Uint8Array], F4: [4, Uint8Array],
};
const SHAPE = [4, 6];

/** Returns a file, and the bytes of its tensors. */
function written(tensors) {
  const [header, data, parts] = [{}, {}, []];
  let at = 0;
  for (const [name, dtype, shape, length] of tensors) {
    data[name] = Uint8Array.from({ length }, (_, index) => (index * 7 + name.length) % 251);
    header[name] = { dtype, shape, data_offsets: [at, (at += length)] };
    parts.push(data[name]);
  }
  const json = new TextEncoder().encode(JSON.stringify(header));
  const prefix = new Uint8Array(new BigUint64Array([BigInt(json.length)]).buffer);
  return { file: Buffer.concat([prefix, json, ...parts]), data };
}

const { file, data } = written(Object.entries(TYPES).map(([dtype, [bits]]) => [dtype, dtype, SHAPE, (24 * bits) / 8]));
let hub;

before(async () => {
  const folder = await mkdtemp(join(tmpdir(), "tensors-"));
  await mkdir(join(folder, "org/model"), { recursive: true });
  await writeFile(join(folder, "org/model/model.safetensors"), file);
  hub = await startHub(folder);
});
after(() => hub.stop());

async function all(...args) {
  const found = {};
  for await (const tensor of readTensors(...args)) found[tensor.name] = tensor;
  return found;
}

const bytes = ({ buffer, byteOffset, byteLength }) => new Uint8Array(buffer, byteOffset, byteLength);

test("every type is an array from every source", async () => {
  const blob = { files: { "model.safetensors": new Blob([file]) } };
  const local = { files: { "model.safetensors": new Uint8Array(file) } };
  for (const [repo, options] of [["org/model", { hubUrl: hub.hubUrl }], [blob, {}], [local, {}]]) {
    for (const maxMemory of [undefined, 0]) {
      const found = await all(repo, "*", { ...options, ...(maxMemory !== undefined && { maxMemory }) });
      assert.deepEqual(Object.keys(found), Object.keys(TYPES));
      for (const [dtype, [, Expected]] of Object.entries(TYPES)) {
        const tensor = found[dtype];
        assert.ok(tensor.data instanceof Expected, dtype);
        assert.deepEqual([tensor.dtype, tensor.shape], [dtype, SHAPE]);
        assert.deepEqual(bytes(tensor.data), data[dtype], dtype);
      }
    }
  }
});

test("patterns and rows select, and a tensor may span many ranges", async () => {
  const found = await all("org/model", ["F32[1:3]", "U?"], { hubUrl: hub.hubUrl });
  assert.deepEqual(Object.keys(found), ["F32", "U8"]);
  assert.deepEqual([found.F32.shape, bytes(found.F32.data)], [[2, 6], data.F32.subarray(24, 72)]);
  const large = written([["a", "F32", [0, 3], 0], ["large", "U32", [500, 500], 1_000_000], ["one", "U8", [], 1]]);
  const files = { files: { "model.safetensors": new Blob([large.file]) } };
  const parts = await all(files, "*", { maxMemory: 0 });
  assert.deepEqual(bytes(parts.large.data), large.data.large);
  assert.deepEqual([parts.a.data.length, parts.one.data.length, parts.one.shape], [0, 1, []]);
});

test("tensors of PyTorch files are read, and transposed ones are refused", async () => {
  const fixture = (name) => new URL(`../../../fixtures/pytorch/${name}`, import.meta.url);
  for (const [name, tensor, start] of [
    ["tied.bin", "h.weight", [187, 76, 210, 62]],
    ["slices.bin", "v", [141, 102, 76, 191]],
    ["legacy-slices.bin", "v", [215, 43, 164, 189]],
  ]) {
    const files = { files: { "pytorch_model.bin": new Blob([await readFile(fixture(name))]) } };
    const found = await all(files, [tensor]);
    assert.deepEqual([...bytes(found[tensor].data).subarray(0, 4)], start, name);
  }
  const columns = { files: { "pytorch_model.bin": new Blob([await readFile(fixture("columns.bin"))]) } };
  await assert.rejects(all(columns, "odd"), { code: "invalidOption", message: /its elements are not in their order/ });
});

test("headers of other shards are not read", async () => {
  const shard = (name) => `model-0000${name}-of-00002.safetensors`;
  const one = written([["a", "U8", [3], 3]]);
  const two = written([["b", "U8", [2], 2]]);
  const index = (map) => new Blob([JSON.stringify({ metadata: {}, weight_map: map })]);
  const files = (weight_map, second) => ({
    files: { "model.safetensors.index.json": index(weight_map), [shard(1)]: new Blob([one.file]), [shard(2)]: new Blob([second]) },
  });
  const map = { a: shard(1), b: shard(2) };
  const found = await all(files(map, "no safetensors file"), "a");
  assert.deepEqual(bytes(found.a.data), one.data.a);
  await assert.rejects(all(files(map, "no safetensors file"), "b"), { code: "malformedHeader" });
  // Without a shard that it names, an index may be right.
  await assert.rejects(all(files({ a: shard(1), c: shard(2) }, two.file), "b"), { code: "malformedIndex", message: /`c`/ });
  await assert.rejects(all(files(map, two.file), "x"), { code: "invalidOption", message: /no tensor matches `x`/ });
});

test("the end of a loop ends its requests", async () => {
  for await (const { name } of readTensors("org/model", "*", { hubUrl: hub.hubUrl, maxMemory: 0 })) {
    assert.equal(name, "F64");
    break;
  }
  const stop = new AbortController();
  const stopped = async () => {
    for await (const _ of readTensors("org/model", "*", { hubUrl: hub.hubUrl, signal: stop.signal })) stop.abort(new Error("enough"));
  };
  await stopped().catch((error) => assert.equal(error.message, "enough"));
});

test("errors say what is wrong", async () => {
  const failed = (repo, names, options) => all(repo, names, { hubUrl: hub.hubUrl, ...options });
  await assert.rejects(failed("org/model", "x"), { code: "invalidOption", message: /no tensor matches `x`/ });
  await assert.rejects(failed("org/model", "F32[:,1]"), { code: "invalidOption" });
  await assert.rejects(failed("org/none", "x"), { code: "repoNotFound" });
  await assert.rejects(failed("org/model", "F32", { maxMemory: -1 }), { code: "invalidOption" });
  // The bytes of the start of a file contain its header, but not all of its data.
  const start = { files: { "model.safetensors": new Uint8Array(file.subarray(0, file.length - 40)) } };
  await assert.rejects(all(start, "F4"), (error) => ["changed", "malformedHeader"].includes(error.code));
});
