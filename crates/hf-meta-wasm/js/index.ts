import { load as loadCore, loadSecond, parse, runInspect, runVerify, runVerifyPair, type Files, type Input, type Inspection, type Pair } from "./core.js";
import { HfMetaError } from "./errors.js";
import { Http } from "./http.js";
import { Hub, type HubOptions } from "./hub.js";
import type { SafetensorsParseFromRepo } from "./huggingface.js";
import type { CountReport, Diff, Memory, MetadataDocument, VerifyReport, Weights } from "./schema.js";
import { localFiles } from "./local.js";
import { parseSource, type LocalFiles, type Repo, type Source } from "./source.js";
import type { Tensor } from "./tensor.js";

export type * from "./schema.js";
export type {
  Dtype, SafetensorsFileHeader, SafetensorsIndexJson, SafetensorsParseFromRepo, SafetensorsShardedHeaders, TensorInfo, TensorName,
} from "./huggingface.js";
export { HfMetaError, type ErrorCode } from "./errors.js";
export { Hub, type HubOptions } from "./hub.js";
export { parseSource, type LocalFiles, type Repo, type Source } from "./source.js";
export type { Tensor, TensorData } from "./tensor.js";

/** The settings of the requests of a call. */
export interface RequestOptions extends HubOptions {
  /** A client that other calls share. It replaces all settings of `HubOptions`. */
  hub?: Hub | undefined;
  signal?: AbortSignal | undefined;
}

/** The options of every call. */
export interface ReadOptions extends RequestOptions {
  /** Default: the revision in the name, or `main`. */
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
  /** Receives the number of shards whose headers were read, and the bytes of all responses so far. A single file is reported before and after its header. */
  onProgress?: (progress: { done: number; total: number; bytesRead: number }) => void;
}

/** The conditions of `memory`, with the names and values of the command. */
export interface MemoryOptions {
  /** The size of the memory into which the model should fit, such as `"24GB"` or a number of bytes. */
  budget?: number | string;
  /** Tokens, such as `32768` or `"32k"`. Default: the maximum of the model. */
  context?: number | string;
  batch?: number;
  cacheDtype?: string;
  engine?: "stored" | "vllm" | "sglang" | "transformers" | "llama.cpp" | "mlx-lm";
  maxNumBatchedTokens?: number | string;
  /** The tokens that a draft predicts in each step of vLLM. */
  numSpeculativeTokens?: number;
  /** The GPUs, such as `"2xH100"`, in place of `budget`. */
  gpu?: string;
  /** The memory for other programs, such as `"1GB"`. */
  reserve?: string;
  /** The share of the memory that vLLM uses, 0.9 by default. */
  gpuMemoryUtilization?: number | string;
  tp?: number;
  /** The stages among which vLLM divides the layers. */
  pp?: number;
}

/** A checkpoint whose headers were read. */
export class Checkpoint {
  /** @internal */
  constructor(
    private inspection: Inspection | undefined,
    private readonly fetched: { requests: number; bytesRead: number; seconds: number },
  ) {}

  /** Returns the document of `hf-meta --json`, or the one of `--summary` if the headers were not kept. */
  json(): Weights | CountReport {
    const inspection = this.read();
    const report = parse<CountReport>(inspection.json());
    Object.assign(report.fetch, this.fetched);
    const parts: unknown[] = [];
    for (let part; (part = inspection.part(parts.length)) !== undefined; ) parts.push(parse(part));
    if (!parts.length) return report;
    const isSafetensors = report.format === "safetensors";
    if (isSafetensors && !report.sharded) return { ...report, header: parts[0] } as unknown as Weights;
    const index = isSafetensors && { index: parts.shift() };
    return { ...report, ...index, headers: Object.fromEntries(parts as [string, object][]) } as unknown as Weights;
  }

  /** Returns the document of `hf-meta --metadata --json`. */
  async metadata(): Promise<MetadataDocument> {
    await loadSecond();
    const found = this.read().metadata();
    if (found === undefined) throw new HfMetaError("invalidOption", "the headers were not kept");
    return parse(found);
  }

  /** Returns the first thumbnail that is a PNG, JPEG, WebP or GIF image of at most 1 MB, as a data URL with the type of its bytes. */
  async thumbnail(): Promise<string | undefined> {
    await loadSecond();
    return this.read().thumbnail();
  }

  /** Returns the modules, with identical ones in one node. */
  tree(): TreeModule[] {
    return parse<{ modules: TreeModule[] }>(this.read().tree()).modules;
  }

  /** Returns the memory under other conditions. Memory must have been requested. */
  memory(options: MemoryOptions): Memory {
    const found = this.read().memory(JSON.stringify(pairs(options)));
    if (found === undefined) throw new HfMetaError("invalidOption", "a value is invalid, or the option `memory` of `open` was not set");
    return parse(found);
  }

  /** Returns the document of `hf-meta diff --json`. */
  diff(after: Checkpoint, options: { ignoreShards?: boolean } = {}): Diff {
    const diff = this.read().diff(after.read(), options.ignoreShards ?? false);
    if (diff === undefined) throw new HfMetaError("invalidOption", "the headers were not kept");
    return parse(diff);
  }

  /** Frees the memory of the headers. Otherwise, the garbage collector does. Later calls of other methods are errors. */
  free(): void {
    this.inspection?.free();
    this.inspection = undefined;
  }

  private read(): Inspection {
    if (!this.inspection) throw new HfMetaError("invalidOption", "the checkpoint was freed");
    return this.inspection;
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

/** Reads the headers of a repository or of local files. */
export async function open(repo: Repo | LocalFiles, options: ReadOptions & { summary?: boolean } = {}): Promise<Checkpoint> {
  const { result, fetched } = await read(runInspect, repo, options);
  return new Checkpoint(result, fetched);
}

/** Runs a function of the core on the files of a repository. Also returns what was fetched. */
async function read<T>(run: (...input: Input) => Promise<T>, name: Repo | LocalFiles, options: CoreOptions & RequestOptions) {
  const started = performance.now();
  const { fetched, ...found } = isLocal(name) ? localFiles(name) : await ofHub(name, options);
  await loadCore();
  const result = await runOn(run, found.reader, { ...options, ...found }, { ...options, fetched });
  return { result, files: found.reader, fetched: { ...fetched(), seconds: (performance.now() - started) / 1000 } };
}

function isLocal(name: Repo | LocalFiles): name is LocalFiles {
  return typeof name === "object" && name !== null && "files" in name;
}

/** Returns the files of a repository, and a function that returns what was fetched. */
async function ofHub(name: Repo, options: CoreOptions & RequestOptions) {
  const { hub } = connected(options);
  const wanted = await parseSource(name, { hubUrl: hub.url, revision: options.revision, path: options.path });
  const http = new Http(hub, wanted, options.signal);
  return { ...wanted, ...(await listed(http, wanted)), fetched: () => ({ requests: http.requests, bytesRead: http.bytesRead }) };
}

/** Returns the options of calls that share a client. */
function connected<T extends RequestOptions>(options: T): Omit<T, keyof HubOptions> & { hub: Hub } {
  if (typeof options !== "object" || options === null) throw new HfMetaError("invalidOption", "the options are not an object");
  const { hub, hubUrl, accessToken, fetch, concurrency, retries, timeout, ...rest } = options;
  // Without types, a wrong value would fail somewhere else, or not at all.
  if (hub !== undefined && !(hub instanceof Hub)) throw new HfMetaError("invalidOption", "`hub` is not a `Hub`");
  if (rest.signal !== undefined && typeof rest.signal?.throwIfAborted !== "function") {
    throw new HfMetaError("invalidOption", "`signal` is not an `AbortSignal`");
  }
  const settings = { hubUrl, accessToken, fetch, concurrency, retries, timeout };
  const given = Object.entries(settings).filter(([, value]) => value !== undefined);
  if (hub && given.length) throw new HfMetaError("invalidOption", `\`${given[0]![0]}\` is a setting of the \`hub\``);
  return { ...rest, hub: hub ?? new Hub(Object.fromEntries(given)) } as Omit<T, keyof HubOptions> & { hub: Hub };
}

/** Returns the document of `hf-meta --json` for a repository. */
export async function inspect(repo: Repo | LocalFiles, options?: ReadOptions & { summary?: false }): Promise<Weights>;
/** Returns the document of `hf-meta --json --summary`, and drops each header once it is counted. */
export async function inspect(repo: Repo | LocalFiles, options: ReadOptions & { summary: true }): Promise<CountReport>;
export async function inspect(repo: Repo | LocalFiles, options: ReadOptions & { summary?: boolean } = {}): Promise<Weights | CountReport> {
  return document(await open(repo, options));
}

/** Returns the document of `hf-meta --metadata --json`: the metadata of each file, with the fields of the SAI Model Spec. */
export async function metadata(repo: Repo | LocalFiles, options: ReadOptions = {}): Promise<MetadataDocument> {
  const checkpoint = await open(repo, options);
  try {
    return await checkpoint.metadata();
  } finally {
    checkpoint.free();
  }
}

/**
 * Reads tensors by their byte ranges, without the rest of the model, and yields them in the order of their files. `names` are
 * names, patterns such as `model.layers.0.*`, and rows such as `lm_head.weight[0:128]`. At most `maxMemory` bytes (64 MiB)
 * are in flight or wait, besides the tensor that is yielded. The end of the loop ends all requests.
 */
export async function* readTensors(
  repo: Repo | LocalFiles,
  names: string | string[],
  options: ReadOptions & { maxMemory?: number } = {},
): AsyncGenerator<Tensor, void> {
  const ended = new AbortController();
  const signal = options.signal ? AbortSignal.any([options.signal, ended.signal]) : ended.signal;
  try {
    const tensors = [names].flat();
    const open = (selected?: string[]) => read(runInspect, repo, { ...options, signal, tensors: selected });
    const found = await open(tensors).catch((error) => {
      // An index may name the wrong shard.
      if (error instanceof HfMetaError && error.code === "malformedIndex") return open();
      throw error;
    });
    await loadSecond();
    const { tensorsOf } = await import("./second.js");
    const reopen = async () => (await open()).result;
    yield* tensorsOf(found, reopen, tensors, options.maxMemory ?? 64 << 20, parse, (code, message, cause) => new HfMetaError(code, message, { cause }));
  } finally {
    ended.abort();
  }
}

/** The counts of a repository and the memory that it needs. */
export type Fit = CountReport & Required<Pick<CountReport, "memory">>;

/** Returns the counts of a repository and the memory that it needs: the document of `hf-meta --memory --json --summary`. */
export async function fit(repo: Repo | LocalFiles, memory: MemoryOptions = {}, options: ReadOptions = {}): Promise<Fit> {
  return (await inspect(repo, { ...options, memory, summary: true })) as Fit;
}

/** Returns the document of `hf-meta diff --json`. */
export async function diff(before: Repo | LocalFiles, after: Repo | LocalFiles, options: ReadOptions & { ignoreShards?: boolean } = {}): Promise<Diff> {
  const shared = connected(options);
  const [one, other] = await Promise.all([open(before, shared), open(after, shared)]);
  const found = one.diff(other, shared);
  [one, other].forEach((checkpoint) => checkpoint.free());
  return found;
}

/** The options of `verify`. */
export interface VerifyOptions extends ReadOptions {
  /** Verifies all weight sets. */
  allSets?: boolean;
  /** The base model of an adapter. */
  base?: Repo | LocalFiles;
  /** The draft model, the adapter and the projector that the engine of `memory` loads together with the model. */
  draft?: Repo | LocalFiles;
  adapter?: Repo | LocalFiles;
  mmproj?: Repo | LocalFiles;
}

/** Returns the document of `hf-meta verify --json`. With `memory`, it answers whether its engine loads the model. */
export async function verify(repo: Repo | LocalFiles, options: VerifyOptions = {}): Promise<VerifyReport> {
  const { draft, adapter, mmproj, ...others } = options;
  const shared = connected(others);
  const { revision, path, weights, base, ...common } = shared;
  const headers = base ? (await read(runInspect, base, common)).result : undefined;
  const pairs: Pair[] = [];
  for (const [kind, pair] of [["draft", draft], ["adapter", adapter], ["projector", mmproj]] as const)
    if (pair) pairs.push((await read((...input) => runVerifyPair(kind, ...input), pair, common)).result);
  const { result, fetched } = await read((...input) => runVerify(headers, pairs, ...input), repo, shared);
  Object.assign(result.fetch, fetched);
  return result;
}

/** Returns the document of `hf-meta --weights gguf --json`. */
export function gguf(repo: Repo | LocalFiles, options: ReadOptions = {}): Promise<Weights> {
  return inspect(repo, { ...options, weights: "gguf" });
}

/** The options of files that were read by other means. */
type LocalOptions = Omit<ReadOptions, Exclude<keyof RequestOptions, "signal"> | "revision">;

/** Counts headers that were read by other means: `inspect({ files, name })`. */
export function inspectHeaders(
  files: LocalFiles["files"],
  options: LocalOptions & { name?: string; summary?: boolean } = {},
): Promise<Weights | CountReport> {
  const { name = "files", ...rest } = options;
  return inspect({ files, name }, rest as ReadOptions & { summary: true });
}

/** The arguments of huggingface.js. */
export interface ParseArguments extends RequestOptions {
  /** A repository that can have weights; others, which huggingface.js also accepts, are an error. */
  repo: Repo | { type: "bucket" | "kernel"; name: string };
  path?: string;
  revision?: string;
  credentials?: { accessToken?: string } | undefined;
  computeParametersCount?: boolean;
  /** Not used: the files of a repository show which weights are its model. */
  library?: string;
}

/** Parses the headers of safetensors weights, with the arguments and the result of huggingface.js. */
export async function parseSafetensorsMetadata(
  params: ParseArguments & { computeParametersCount: true },
): Promise<SafetensorsParseFromRepo & Required<Pick<SafetensorsParseFromRepo, "parameterCount" | "parameterTotal">>>;
export async function parseSafetensorsMetadata(params: ParseArguments): Promise<SafetensorsParseFromRepo>;
export async function parseSafetensorsMetadata(params: ParseArguments): Promise<SafetensorsParseFromRepo> {
  const { repo, credentials, computeParametersCount, library, ...options } = params;
  const accessToken = options.accessToken ?? credentials?.accessToken;
  // Half as many requests; their number is not part of the result.
  const parsed = await inspect(repo as Repo, { ...options, ...(accessToken && { accessToken }), weights: "safetensors", plan: "prefetch" });
  const { parameterCount, parameterTotal, ...rest } = parsed as CountReport;
  return { ...rest, ...(computeParametersCount && { parameterCount, parameterTotal }) } as unknown as SafetensorsParseFromRepo;
}

/** Resolves the commit of a revision, and lists its files. */
async function listed(http: Http, { repo, revision }: Source) {
  const hub = http.hub.url;
  const api = /^(datasets|spaces)\//.test(repo) ? repo : `models/${repo}`;
  const json = async (url: string) => {
    const { bytes, response } = await http.whole(`list of files of ${repo}`, url, 16_000_000);
    try {
      return { page: JSON.parse(new TextDecoder().decode(bytes)) as unknown, response };
    } catch (cause) {
      throw new HfMetaError("malformedListing", `the list of files of \`${repo}\` is not JSON`, { cause });
    }
  };
  const { page } = await json(`${hub}/api/${api}/revision/${encodeURIComponent(revision)}?expand=sha&expand=safetensors`);
  const { id, sha, safetensors } = page as { id?: string; sha?: string; safetensors?: { total?: unknown } };
  if (typeof id !== "string" || typeof sha !== "string") throw new HfMetaError("malformedListing", `the Hub reports no commit of \`${repo}\``);
  const kind = api.slice(0, api.indexOf("/"));
  const name = kind === "models" ? id : `${kind}/${id}`;
  const tree = `${hub}/api/${kind}/${id}/tree/${sha}`;
  const files: ListedFile[] = [];
  for (let query: string | undefined = "?recursive=true", pages = 0; query; pages++) {
    const { page, response } = await json(tree + query);
    if (!Array.isArray(page) || pages >= 2000 || files.length > 100_000) {
      throw new HfMetaError("malformedListing", `the list of files of \`${repo}\` is malformed or does not end`);
    }
    for (const { type, path, size } of page) if (type === "file") files.push({ path: String(path), size: Number(size) });
    // Only the query: a mirror forwards the address of the Hub, and no server may choose who receives the token.
    query = /<[^>?]*(\?[^>]*)>[^<]*rel="?next/.exec(response.headers.get("link") ?? "")?.[1];
  }
  const url = (path: string) => `${hub}/${name}/resolve/${sha}/${path.split("/").map(encodeURIComponent).join("/")}`;
  const sizes = new Map(files.map(({ path, size }) => [path, size]));
  const reader: Files = {
    read: (path, start, end) => http.range(`${repo}/${path}`, url(path), start, end, sizes.get(path)),
    load: async (path, limit) => ({ bytes: (await http.whole(`${repo}/${path}`, url(path), limit)).bytes }),
  };
  const total = Number(safetensors?.total);
  return { files, commit: sha, renamed: name === repo ? undefined : name, hubCount: Number.isSafeInteger(total) ? total : undefined, reader };
}

/** Runs a function of the core on a list of files. */
async function runOn<T>(
  run: (...input: Input) => Promise<T>,
  reader: Files,
  options: CoreOptions,
  { onProgress, signal, fetched }: Pick<ReadOptions, "onProgress" | "signal"> & { fetched: () => { bytesRead: number } },
): Promise<T> {
  const { source, repo, commit, renamed, hubCount, files, path, weights, plan = "exact", maxHeaderBytes = 25_000_000, memory } = options;
  if (!["exact", "prefetch"].includes(plan)) throw new HfMetaError("invalidOption", "`plan` must be `exact` or `prefetch`");
  if (!(maxHeaderBytes >= 0 && maxHeaderBytes <= 100_000_000)) throw new HfMetaError("invalidOption", "`maxHeaderBytes` must be at most 100,000,000");
  const progress = (done: number, total: number) => onProgress?.({ done, total, bytesRead: fetched().bytesRead });
  try {
    return await run(reader, progress, {
      source, repo, commit, renamed, hubCount, files, path, weights, plan, maxHeaderBytes,
      otherSets: options.otherSets ?? false,
      allSets: options.allSets ?? false,
      keepHeaders: !options.summary,
      tensors: options.tensors,
      memory: memory && pairs(memory),
    });
  } finally {
    // The reason of an aborted call replaces its failure, and the findings about files that it did not read.
    signal?.throwIfAborted();
  }
}

/** Returns the names and values of options as texts. A number of `budget` is a number of bytes. */
function pairs(memory: MemoryOptions): [string, string][] {
  const given = Object.entries(memory).filter(([, value]) => value !== undefined);
  return given.map(([name, value]) => [name, name === "budget" && typeof value === "number" ? `${value}B` : String(value)]);
}

type ListedFile = { path: string; size: number };
type CoreOptions = Omit<ReadOptions, keyof RequestOptions> & {
  source?: string;
  repo?: string;
  commit?: string;
  renamed?: string | undefined;
  hubCount?: number | undefined;
  files?: ListedFile[];
  summary?: boolean;
  /** The tensors whose shards to read. */
  tensors?: string[] | undefined;
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
