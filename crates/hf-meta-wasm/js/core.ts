import { XzReadableStream } from "xz-decompress";

import init, { addTables, inspect, parseSource, verify, type Inspection } from "../build/core.js";
import first from "../build/first.wasm.xz";

import { HfMetaError } from "./errors.js";
import type { Part } from "./http.js";
import type { VerifyReport } from "./schema.js";

export type { Inspection };

/** The files of a commit, as the core requests them. */
export interface Files {
  read(path: string, start: number, end: number): Promise<Part>;
  load(path: string, limit: number): Promise<Part>;
}

let loading: Promise<unknown> | undefined;
let loadingSecond: Promise<void> | undefined;

/** Loads the core once. Without it, every call loads it first. */
export function load(): Promise<unknown> {
  return (loading ??= init({ module_or_path: unpack(first).arrayBuffer() }));
}

/** Loads the second module of the core and the tables of architectures once, which only some calls need. */
function loadSecond(): Promise<void> {
  const add = async ({ second, tables }: typeof import("./second.js")) => {
    await WebAssembly.instantiate(await unpack(second).arrayBuffer(), { "": (await load()) as WebAssembly.ModuleImports });
    addTables(await unpack(tables).text());
  };
  const failed = (cause: unknown) => {
    loadingSecond = undefined;
    throw new HfMetaError("network", "failed to load the second part of the package", { cause });
  };
  return (loadingSecond ??= import("./second.js").then(add).catch(failed));
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

/** Verifies weights, and compares an adapter with its base model, which is freed. */
export async function runVerify(base: Inspection | undefined, ...input: Input): Promise<VerifyReport> {
  return parse(await verify(...prepared(input), base));
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

/** The parts of the name of a repository. */
export interface Source {
  /** The name as shown in results. */
  source: string;
  /** The path of the repository below `api/`. */
  api: string;
  /** The path of the repository in URLs of files. */
  repo: string;
  revision: string;
}

/** Checks the name of a repository, and its revision and path. */
export function source(repo: string, revision?: string, path?: string): Source {
  for (const [name, text] of Object.entries({ repo, revision: revision ?? "", path: path ?? "" })) {
    if (typeof text !== "string") throw new HfMetaError("invalidSource", `\`${name}\` is not text`);
  }
  try {
    const [name, parsed] = parse<[string, string]>(parseSource(repo, revision, path));
    const shown = path ? `hf://${name}@${parsed.replaceAll("/", "%2F")}/${path}` : revision ? `${name}@${parsed}` : name;
    return { source: shown, api: /^(datasets|spaces)\//.test(name) ? name : `models/${name}`, repo: name, revision: parsed };
  } catch (error) {
    throw new HfMetaError("invalidSource", (error as Error).message);
  }
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
