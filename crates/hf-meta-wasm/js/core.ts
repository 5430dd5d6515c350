import init, { inspect, parseSource, type Inspection } from "../build/core.js";
import compressed from "../build/core.wasm.gz";

import { HfMetaError } from "./errors.js";
import type { Part } from "./http.js";

export type { Inspection };

/** The files of a commit, as the core requests them. */
export interface Files {
  read(path: string, start: number, end: number): Promise<Part>;
  load(path: string, limit: number): Promise<Part>;
}

let loading: Promise<unknown> | undefined;

/** Loads the core once. Without it, every call loads it first. */
export function load(): Promise<unknown> {
  const decompress = async () => {
    const stream = new Blob([compressed as BlobPart]).stream().pipeThrough(new DecompressionStream("gzip"));
    await init({ module_or_path: await new Response(stream).arrayBuffer() });
  };
  return (loading ??= decompress());
}

/** Runs the core, which requests parts of files. */
export function run(files: Files, progress: (done: number, total: number) => void, options: object): Promise<Inspection> {
  const reader = {
    read: (path: string, start: number, end: number) => files.read(path, start, end),
    load: (path: string, limit: number) => files.load(path, limit),
    progress,
    failure: (code: HfMetaError["code"], message: string, sets?: string) =>
      new HfMetaError(code, message, sets === undefined ? {} : { otherSets: parse(sets) }),
  };
  return inspect(reader as never, JSON.stringify(options));
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
  try {
    return parse(parseSource(repo, revision, path));
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
