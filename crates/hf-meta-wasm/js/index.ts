import { load as loadCore, parse, runInspect, runVerify, source, type Files, type Input, type Inspection, type Source } from "./core.js";
import { HfMetaError } from "./errors.js";
import { Http, type HttpOptions, type Part } from "./http.js";
import type { CountReport, Diff, Memory, SafetensorsFile, SafetensorsShards, VerifyReport, Weights } from "./schema.js";

export type * from "./schema.js";
export { HfMetaError, type ErrorCode } from "./errors.js";

export type { HttpOptions, Part } from "./http.js";

/** The name of a repository: `org/name`, `org/name@revision`, or its type and name. */
export type Repo = string | { type?: "model" | "dataset" | "space"; name: string };

/** The options of every call. */
export interface ReadOptions extends HttpOptions {
  /** Default: the part of the name after `@`, or `main`. */
  revision?: string;
  /** The weight file, index, folder or quantization to read. */
  path?: string;
  /** The format to read. Default: safetensors, or else another format that the repository has. */
  weights?: "safetensors" | "gguf" | "pytorch";
  /** `prefetch` reads most headers in one request instead of two. Default: `exact`. */
  plan?: "exact" | "prefetch";
  /** Lists the other weight sets even if the weights have a standard name. */
  otherSets?: boolean;
  /** The maximum size of a header in bytes. Default: 25,000,000; at most 100,000,000 is valid. */
  maxHeaderBytes?: number;
  /** Computes the memory of weights and cache. */
  memory?: MemoryOptions;
  /** Receives the number of shards whose headers were read. */
  onProgress?: (progress: { done: number; total: number }) => void;
}

/** The conditions of `memory`, with the names and values of the command. */
export interface MemoryOptions {
  /** The size of the memory into which the model should fit, such as `"24GB"` or a number of bytes. */
  budget?: number | string;
  /** Tokens, such as `32768` or `"32k"`. Default: the maximum of the model. */
  context?: number | string;
  batch?: number;
  cacheDtype?: string;
  engine?: "stored" | "vllm" | "llama.cpp";
  maxNumBatchedTokens?: number | string;
  /** The share of the memory that vLLM uses, 0.9 by default. */
  gpuMemoryUtilization?: number | string;
  tp?: number;
}

/** A checkpoint whose headers were read. */
export class Checkpoint {
  /** @internal */
  constructor(
    private readonly inspection: Inspection,
    private readonly fetched: { requests: number; bytesRead: number; seconds: number },
  ) {}

  /** Returns the document of `hf-meta --json`, or the one of `--summary` if the headers were not kept. */
  json(): Weights | CountReport {
    const report = parse<CountReport>(this.inspection.json());
    Object.assign(report.fetch, this.fetched);
    const parts: unknown[] = [];
    for (let part; (part = this.inspection.part(parts.length)) !== undefined; ) parts.push(parse(part));
    if (!parts.length) return report;
    const isSafetensors = report.format === "safetensors";
    if (isSafetensors && !report.sharded) return { ...report, header: parts[0] } as unknown as Weights;
    const index = isSafetensors && { index: parts.shift() };
    return { ...report, ...index, headers: Object.fromEntries(parts as [string, object][]) } as unknown as Weights;
  }

  /** Returns the modules, with identical ones in one node. */
  tree(): TreeModule[] {
    return parse<{ modules: TreeModule[] }>(this.inspection.tree()).modules;
  }

  /** Returns the memory for another context and budget. Memory must have been requested. */
  memory(options: Pick<MemoryOptions, "context" | "budget">): Memory {
    const found = this.inspection.memory(text(options.context), text(options.budget, "B"));
    if (found === undefined) throw new HfMetaError("invalidOption", "no memory was requested, or a value is invalid");
    return parse(found);
  }

  /** Returns the document of `hf-meta diff --json`. */
  diff(after: Checkpoint, options: { ignoreShards?: boolean } = {}): Diff {
    const diff = this.inspection.diff(after.inspection, options.ignoreShards ?? false);
    if (diff === undefined) throw new HfMetaError("invalidOption", "the headers were not kept");
    return parse(diff);
  }

  /** Frees the memory of the headers. Otherwise, the garbage collector does. */
  free(): void {
    this.inspection.free();
  }
}

/** A module or a tensor, or several identical ones. */
export interface TreeModule {
  name: string;
  repeats: number;
  tensors: number;
  elements: number;
  bytes: number;
  content: { tensor: { dtype: string; shape: number[] } } | { modules: TreeModule[] };
}

/** Reads the headers of a repository. */
export async function open(repo: Repo, options: ReadOptions & { summary?: boolean } = {}): Promise<Checkpoint> {
  const { result, fetched } = await read(runInspect, repo, options);
  return new Checkpoint(result, fetched);
}

/** Runs a function of the core on the files of a repository. Also returns what was fetched. */
async function read<T>(run: (...input: Input) => Promise<T>, repo: Repo, options: CoreOptions & HttpOptions) {
  await loadCore();
  const started = performance.now();
  const http = new Http(options);
  const [name, revision] = split(repo, options.revision);
  const wanted = source(name, revision, options.path);
  const { reader, ...found } = await listed(http, wanted);
  const result = await runOn(run, reader, { ...options, ...found, source: wanted.source, repo: wanted.repo }, options);
  const { requests, bytesRead } = http;
  return { result, fetched: { requests, bytesRead, seconds: (performance.now() - started) / 1000 } };
}

/** Returns the document of `hf-meta --json` for a repository. */
export async function inspect(repo: Repo, options?: ReadOptions & { summary?: false }): Promise<Weights>;
/** Returns the document of `hf-meta --json --summary`, and drops each header once it is counted. */
export async function inspect(repo: Repo, options: ReadOptions & { summary: true }): Promise<CountReport>;
export async function inspect(repo: Repo, options: ReadOptions & { summary?: boolean } = {}): Promise<Weights | CountReport> {
  return document(await open(repo, options));
}

/** The counts of a repository and the memory that it needs. */
export type Fit = CountReport & Required<Pick<CountReport, "memory">>;

/** Returns the counts of a repository and the memory that it needs: the document of `hf-meta --memory --json --summary`. */
export async function fit(repo: Repo, memory: MemoryOptions, options: ReadOptions = {}): Promise<Fit> {
  return (await inspect(repo, { ...options, memory, summary: true })) as Fit;
}

/** Returns the document of `hf-meta diff --json`. */
export async function diff(before: Repo, after: Repo, options: ReadOptions & { ignoreShards?: boolean } = {}): Promise<Diff> {
  const [one, other] = await Promise.all([open(before, options), open(after, options)]);
  const found = one.diff(other, options);
  [one, other].forEach((checkpoint) => checkpoint.free());
  return found;
}

/** Returns the document of `hf-meta verify --json`, for all weight sets with `allSets`. `base` is the base model of an adapter. */
export async function verify(repo: Repo, options: ReadOptions & { allSets?: boolean; base?: Repo } = {}): Promise<VerifyReport> {
  const { revision, path, weights, base, ...common } = options;
  const headers = base ? (await read(runInspect, base, common)).result : undefined;
  const { result, fetched } = await read((...input) => runVerify(headers, ...input), repo, options);
  Object.assign(result.fetch, fetched);
  return result;
}

/** Returns the document of `hf-meta --weights gguf --json`. */
export function gguf(repo: Repo, options: ReadOptions = {}): Promise<Weights> {
  return inspect(repo, { ...options, weights: "gguf" });
}

/**
 * Counts headers that were read by other means. `files` are the weight files, and `config.json` if there is one, by
 * path: a `Blob` of a whole file, or the bytes of the start of a file, which contain the header.
 */
export async function inspectHeaders(
  files: Record<string, Uint8Array | Blob>,
  options: Omit<ReadOptions, keyof HttpOptions | "revision"> & { name?: string; summary?: boolean } = {},
): Promise<Weights | CountReport> {
  await loadCore();
  const started = performance.now();
  const read = async (path: string, start: number, end: number): Promise<Part> => {
    const file = files[path];
    if (!file) throw new HfMetaError("fileNotFound", `\`${path}\` not found`);
    if (file instanceof Uint8Array) return { bytes: file.subarray(start, end) };
    return { bytes: new Uint8Array(await file.slice(start, end).arrayBuffer()), size: file.size };
  };
  const whole = { read, load: (path: string, limit: number) => read(path, 0, limit) };
  const sizes = Object.entries(files).map(([path, file]) => {
    if (file instanceof Uint8Array || file instanceof Blob) return { path, size: file instanceof Blob ? file.size : file.length };
    throw new HfMetaError("invalidOption", `\`${path}\` is neither a \`Uint8Array\` nor a \`Blob\``);
  });
  const inspection = await runOn(runInspect, whole, { ...options, source: options.name ?? "files", repo: options.name ?? "files", files: sizes }, options);
  return document(new Checkpoint(inspection, { requests: 0, bytesRead: 0, seconds: (performance.now() - started) / 1000 }));
}

/** The result of `parseSafetensorsMetadata`. Fields that huggingface.js does not have are additions. */
export type SafetensorsParseFromRepo<Counted extends boolean = boolean> =
  (Omit<SafetensorsFile, Counts> & { sharded: false } | Omit<SafetensorsShards, Counts> & { sharded: true })
  & (Counted extends true ? Pick<CountReport, Counts> : Partial<Pick<CountReport, Counts>>);
type Counts = "parameterCount" | "parameterTotal";

/** The arguments of huggingface.js. */
export interface ParseArguments extends Omit<HttpOptions, "accessToken"> {
  repo: Repo;
  path?: string;
  revision?: string;
  accessToken?: string;
  credentials?: { accessToken?: string };
  computeParametersCount?: boolean;
}

/** Parses the headers of safetensors weights, with the arguments and the result of huggingface.js. */
export async function parseSafetensorsMetadata(params: ParseArguments & { computeParametersCount: true }): Promise<SafetensorsParseFromRepo<true>>;
export async function parseSafetensorsMetadata(params: ParseArguments): Promise<SafetensorsParseFromRepo<false>>;
export async function parseSafetensorsMetadata(params: ParseArguments): Promise<SafetensorsParseFromRepo> {
  const { repo, credentials, computeParametersCount, ...options } = params;
  const accessToken = options.accessToken ?? credentials?.accessToken;
  // Half as many requests; their number is not part of the result.
  const parsed = await inspect(repo, { ...options, ...(accessToken && { accessToken }), weights: "safetensors", plan: "prefetch" });
  const { parameterCount, parameterTotal, ...rest } = parsed as CountReport;
  return { ...rest, ...(computeParametersCount && { parameterCount, parameterTotal }) } as unknown as SafetensorsParseFromRepo;
}

/** Splits `org/name@revision`, and adds the type of the repository as huggingface.js spells it. */
function split(repo: Repo, revision?: string): [string, string | undefined] {
  if (typeof repo !== "string") {
    const { type = "model", name } = repo ?? {};
    if (!["model", "dataset", "space"].includes(type)) throw new HfMetaError("invalidSource", `\`${type}\` is not a type of repositories`);
    return [type === "model" ? name : `${type}s/${name}`, revision];
  }
  const at = repo.indexOf("@");
  return at < 0 ? [repo, revision] : [repo.slice(0, at), revision ?? repo.slice(at + 1)];
}

/** Resolves the commit of a revision, and lists its files. */
async function listed(http: Http, { api, repo, revision }: Source) {
  const json = async (url: string) => {
    const { bytes, response } = await http.whole(url, 16_000_000);
    try {
      return { page: JSON.parse(new TextDecoder().decode(bytes)) as unknown, response };
    } catch (cause) {
      throw new HfMetaError("malformedListing", "the response of the Hub is not JSON", { cause });
    }
  };
  const { page } = await json(`${http.hub}/api/${api}/revision/${encodeURIComponent(revision)}?expand=sha&expand=safetensors`);
  const { id, sha, safetensors } = page as { id?: string; sha?: string; safetensors?: { total?: unknown } };
  if (typeof id !== "string" || typeof sha !== "string") throw new HfMetaError("malformedListing", "the response of the Hub contains no commit");
  const kind = api.slice(0, api.indexOf("/"));
  const name = kind === "models" ? id : `${kind}/${id}`;
  const tree = `${http.hub}/api/${kind}/${id}/tree/${sha}`;
  const files: ListedFile[] = [];
  for (let query: string | undefined = "?recursive=true", pages = 0; query; pages++) {
    const { page, response } = await json(tree + query);
    if (!Array.isArray(page) || pages >= 2000 || files.length > 100_000) {
      throw new HfMetaError("malformedListing", "the file listing is malformed or does not end");
    }
    for (const { type, path, size } of page) if (type === "file") files.push({ path: String(path), size: Number(size) });
    // Only the query: a mirror forwards the address of the Hub, and no server may choose who receives the token.
    query = /<[^>?]*(\?[^>]*)>[^<]*rel="?next/.exec(response.headers.get("link") ?? "")?.[1];
  }
  const url = (path: string) => `${http.hub}/${name}/resolve/${sha}/${path.split("/").map(encodeURIComponent).join("/")}`;
  const reader: Files = {
    read: (path, start, end) => http.range(url(path), start, end),
    load: async (path, limit) => ({ bytes: (await http.whole(url(path), limit)).bytes }),
  };
  const total = Number(safetensors?.total);
  return { files, commit: sha, renamed: name === repo ? undefined : name, hubCount: Number.isSafeInteger(total) ? total : undefined, reader };
}

/** Runs a function of the core on a list of files. */
async function runOn<T>(
  run: (...input: Input) => Promise<T>,
  reader: Files,
  options: CoreOptions,
  { onProgress, signal }: ReadOptions,
): Promise<T> {
  const { source, repo, commit, renamed, hubCount, files, path, weights, plan = "exact", maxHeaderBytes = 25_000_000, memory } = options;
  if (!["exact", "prefetch"].includes(plan)) throw new HfMetaError("invalidOption", "`plan` must be `exact` or `prefetch`");
  if (!(maxHeaderBytes >= 0 && maxHeaderBytes <= 100_000_000)) throw new HfMetaError("invalidOption", "`maxHeaderBytes` must be at most 100,000,000");
  const progress = (done: number, total: number) => onProgress?.({ done, total });
  try {
    return await run(reader, progress, {
      source, repo, commit, renamed, hubCount, files, path, weights, plan, maxHeaderBytes,
      otherSets: options.otherSets ?? false,
      allSets: options.allSets ?? false,
      keepHeaders: !options.summary,
      memory: memory && Object.entries(memory).filter(([, value]) => value !== undefined)
        .map(([name, value]) => [name, text(value, name === "budget" ? "B" : "")]),
    });
  } finally {
    // The reason of an aborted call replaces its failure, and the findings about files that it did not read.
    signal?.throwIfAborted();
  }
}

/** Writes a number with its unit. */
function text(value: number | string | undefined, unit = ""): string | undefined {
  return typeof value === "number" ? `${value}${unit}` : value;
}

type ListedFile = { path: string; size: number };
type CoreOptions = Omit<ReadOptions, keyof HttpOptions> & {
  source?: string;
  repo?: string;
  commit?: string;
  renamed?: string | undefined;
  hubCount?: number | undefined;
  files?: ListedFile[];
  summary?: boolean;
  allSets?: boolean;
};

/** Returns the document of a checkpoint, and frees its memory. */
function document(checkpoint: Checkpoint): never {
  const found = checkpoint.json();
  checkpoint.free();
  return found as never;
}

/** Loads the core, so that the first call need not do it. */
export const load = async (): Promise<void> => void (await loadCore());
