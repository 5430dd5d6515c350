import { XzReadableStream } from "xz-decompress";

import init, { addTables, inspect, verify, verify_pair, type Inspection, type Pair } from "../build/core.js";
import { HfMetaError } from "./errors.js";
import type { Part } from "./http.js";
import type { VerifyReport } from "./schema.js";

export type { Inspection, Pair };

/** The files of a commit, as the core requests them. */
export interface Files {
  read(path: string, start: number, end: number): Promise<Part>;
  load(path: string, limit: number): Promise<Part>;
}

let loading: Promise<unknown> | undefined;
let loadingSecond: Promise<void> | undefined;

/** Loads the core once. Without it, every call loads it first. */
export function load(): Promise<unknown> {
  const start = async ({ first }: typeof import("./first.js")) => init({ module_or_path: await unpack(first).arrayBuffer() });
  return (loading ??= import("./first.js").then(start).catch((cause: unknown) => {
    loading = undefined;
    throw new HfMetaError("network", "failed to load the core of the package", { cause });
  }));
}

/** Loads the second module of the core and the tables of architectures once, which only some calls need. */
export function loadSecond(): Promise<void> {
  const add = async ({ second, tables }: typeof import("./second.js")) => {
    await WebAssembly.instantiate(await unpack(second).arrayBuffer(), { "": (await load()) as WebAssembly.ModuleImports });
    addTables(await unpack(tables).text());
  };
  return (loadingSecond ??= import("./second.js").then(add).catch((cause: unknown) => {
    loadingSecond = undefined;
    throw new HfMetaError("network", "failed to load the second part of the package", { cause });
  }));
}

function unpack(packed: Uint8Array<ArrayBuffer>): Response {
  return new Response(new XzReadableStream(new Blob([packed]).stream()));
}

/** The inputs of the core: files, which it reads by parts, a function that receives the progress, and options. */
export type Input = [files: Files, progress: (done: number, total: number) => void, options: object];

/** Reads the headers of weights. */
export function runInspect(...input: Input): Promise<Inspection> {
  return inspect(...prepared(input));
}

/** Verifies weights, and compares an adapter with its base model. The base model and the pairs are freed. */
export async function runVerify(base: Inspection | undefined, pairs: Pair[], ...input: Input): Promise<VerifyReport> {
  return parse(await verify(...prepared(input), base, pairs));
}

/** Verifies a file that is loaded together with a model. */
export function runVerifyPair(kind: string, ...input: Input): Promise<Pair> {
  return verify_pair(...prepared(input), kind);
}

function prepared([files, progress, options]: Input): [never, string] {
  const reader = {
    read: async (path: string, start: bigint, end: bigint) => {
      const { bytes, size } = await files.read(path, Number(start), Number(end));
      // A server may state any size.
      return { bytes, size: size === undefined ? size : BigInt(Math.min(size, Number.MAX_SAFE_INTEGER)) };
    },
    load: (path: string, limit: bigint) => files.load(path, Number(limit)),
    loadSecond,
    progress,
    failure: (code: HfMetaError["code"], message: string, sets?: string) =>
      new HfMetaError(code, message, sets === undefined ? {} : { otherSets: parse(sets) }),
  };
  return [reader as never, JSON.stringify(options)];
}

/** Parses a result. Every integer is exact: one beyond 2^53 is an error. */
export function parse<T>(json: string): T {
  if (!/\d{16}/.test(json)) return JSON.parse(json) as T;
  return JSON.parse(json, (_key, value: unknown) => {
    if (typeof value === "number" && Math.abs(value) > Number.MAX_SAFE_INTEGER) {
      throw new HfMetaError("tooLarge", "the result contains an integer beyond 2^53");
    }
    return value;
  }) as T;
}
