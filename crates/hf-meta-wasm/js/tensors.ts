import type { Files, Inspection } from "./core.js";
import type { HfMetaError } from "./errors.js";
import type { Tensor, TensorData } from "./tensor.js";

/** The ranges of a plan, as `hf-meta get --plan-only --json` prints them. */
interface Plan {
  ranges: { file: string; start: number; end: number; tensors: string[] }[];
  tensors: { name: string; dtype: string; shape: number[]; file: string; start: number; end: number }[];
}

/** The arrays of the types. C64 has a real and an imaginary number per element, and other types are bytes. */
const ARRAYS: Record<string, new (buffer: ArrayBuffer) => TensorData> = {
  I8: Int8Array, U16: Uint16Array, I16: Int16Array, F16: Uint16Array, BF16: Uint16Array, U32: Uint32Array, I32: Int32Array,
  F32: Float32Array, C64: Float32Array, F64: Float64Array, U64: BigUint64Array, I64: BigInt64Array,
};

/** Creates an error. */
type Fail = (code: HfMetaError["code"], message: string, cause?: unknown) => HfMetaError;

/** The maximum length of a range in bytes, and the length that is worth a request if the memory is small. */
const [MAX_RANGE, MIN_RANGE] = [8 << 20, 1 << 16];

/**
 * Reads the ranges of tensors, several at a time, and yields the tensors in the order of their data. Frees the headers.
 * `reopen` reads the headers of all shards, for names that the index lacks.
 */
export async function* tensorsOf(
  { result, files }: { result: Inspection; files: Files },
  reopen: () => Promise<Inspection>,
  names: string[],
  maxMemory: number,
  parse: <T>(json: string) => T,
  fail: Fail,
): AsyncGenerator<Tensor, void> {
  if (!(maxMemory >= 0)) throw fail("invalidOption", "`maxMemory` must be at least 0");
  // Several ranges fit into the memory.
  const maxRange = Math.max(MIN_RANGE, Math.min(MAX_RANGE, Math.floor(maxMemory / 4)));
  const inFlight = Math.max(1, Math.floor(maxMemory / maxRange) - 1);
  let inspection = result;
  const plan = (headers: Uint8Array) =>
    planned(() => parse<Plan | Plan["ranges"]>(inspection.plan(JSON.stringify(names), maxRange, headers)), fail);
  let found;
  try {
    found = plan(new Uint8Array());
  } catch (error) {
    if (!inspection.isPartial) throw error;
    inspection.free();
    inspection = await reopen();
    found = plan(new Uint8Array());
  }
  // A storage of PyTorch begins behind a header in its archive.
  if (Array.isArray(found)) found = plan(await readHeaders(files, found, fail));
  if (Array.isArray(found)) throw fail("changed", "the headers inside of an archive have changed");
  const { ranges, tensors } = found;
  inspection.free();
  const started: Promise<Uint8Array>[] = [];
  const start = (at: number) => {
    const range = ranges[at];
    if (!range) return;
    const read = exactly(files, range, fail);
    // It is awaited after the ranges before it, which may fail first.
    read.catch(() => undefined);
    started[at] = read;
  };
  for (let at = 0; at < inFlight; at++) start(at);
  let at = -1;
  let bytes: Uint8Array = new Uint8Array();
  for (const { name, dtype, shape, file, start: from, end } of tensors) {
    const data = allocated(name, end - from, fail);
    for (let filled = 0; filled < data.length; ) {
      const position = from + filled;
      let range = ranges[at];
      if (range?.file !== file || position < range.start || position >= range.end) {
        range = ranges[++at]!;
        bytes = await started[at]!;
        delete started[at];
        start(at + inFlight);
      }
      const part = bytes.subarray(position - range.start, Math.min(end, range.end) - range.start);
      data.set(part, filled);
      filled += part.length;
    }
    yield { name, dtype, shape, data: new (ARRAYS[dtype] ?? Uint8Array)(data.buffer) };
  }
}

/** The number of local headers in flight. */
const HEADERS_IN_FLIGHT = 32;

/** Reads the local headers of archives, one after the other in the result. */
async function readHeaders(files: Files, headers: Plan["ranges"], fail: Fail): Promise<Uint8Array> {
  const length = headers.reduce((sum, { start, end }) => sum + end - start, 0);
  const [bytes, positions] = [new Uint8Array(length), headers.entries()];
  let at = 0;
  const offsets = headers.map(({ start, end }) => (at += end - start) - (end - start));
  const worker = async () => {
    for (const [index, header] of positions) bytes.set(await exactly(files, header, fail), offsets[index]!);
  };
  await Promise.all(Array.from({ length: HEADERS_IN_FLIGHT }, worker));
  return bytes;
}

/** Returns a plan. The core throws texts. */
function planned<T>(plan: () => T, fail: Fail): T {
  try {
    return plan();
  } catch (error) {
    throw error instanceof Error && "code" in error ? error : fail("invalidOption", error instanceof Error ? error.message : String(error));
  }
}

/** Reads a range of a file. */
async function exactly(files: Files, { file, start, end }: Plan["ranges"][0], fail: Fail): Promise<Uint8Array> {
  const { bytes } = await files.read(file, start, end);
  if (bytes.length === end - start) return bytes;
  throw fail("changed", `expected ${end - start} bytes of \`${file}\`, got ${bytes.length}`);
}

function allocated(name: string, length: number, fail: Fail): Uint8Array<ArrayBuffer> {
  try {
    return new Uint8Array(length);
  } catch (cause) {
    throw fail("tooLarge", `tensor \`${name}\` has ${length} bytes, which do not fit into an array`, cause);
  }
}
