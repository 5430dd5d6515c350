import { HfMetaError, type ErrorCode } from "./errors.js";

/** The settings of the requests of a call. */
export interface HttpOptions {
  /** The URL of the Hub. Default: `https://huggingface.co`. */
  hubUrl?: string;
  /** The access token. It is sent to the origin of the Hub only. */
  accessToken?: string;
  /** Replaces the `fetch` of the platform. */
  fetch?: typeof fetch;
  signal?: AbortSignal;
  /** The maximum number of requests in flight. Default: 64. */
  concurrency?: number;
  /** The maximum number of retries of a request after a transient failure. Default: 4. */
  retries?: number;
  /** The time limit of each attempt in milliseconds. Default: 60,000. */
  timeout?: number;
}

/** A part of a file, and the size of the file if it is known. */
export interface Part {
  bytes: Uint8Array;
  size?: number;
}

/** Statuses after which a retry may succeed. */
const RETRIED = new Set([408, 429, 500, 502, 503, 504]);

/** The maximum wait that a server may ask for, in seconds. */
const MAX_WAIT = 60;

/** The bytes before a range that are read and dropped if a server ignores ranges. Headers begin near the start. */
const MAX_SKIPPED = 1 << 20;

const CODES: Record<string, ErrorCode> = {
  RepoNotFound: "repoNotFound",
  RevisionNotFound: "revisionNotFound",
  EntryNotFound: "fileNotFound",
  GatedRepo: "gated",
};

/** A failure after which the request is repeated. */
class Transient extends Error {
  constructor(readonly failure: HfMetaError, readonly wait = 0) {
    super(failure.message);
  }
}

/** Sends the requests of a call: at most `concurrency` at once, and again after transient failures. */
export class Http {
  requests = 0;
  bytesRead = 0;
  readonly hub: string;
  private readonly options: HttpOptions;
  private readonly waiting: (() => void)[] = [];
  private free: number;

  constructor(options: HttpOptions) {
    this.options = options;
    this.hub = (options.hubUrl ?? "https://huggingface.co").replace(/\/+$/, "");
    this.free = options.concurrency ?? 64;
    if (!/^https?:\/\//i.test(this.hub)) throw new HfMetaError("invalidOption", "`hubUrl` is not the URL of a server");
    // The error of `fetch` would contain the token.
    if (!/^[!-~]*$/.test(options.accessToken ?? "")) throw new HfMetaError("invalidOption", "the token contains invalid characters");
    for (const [name, least] of [["concurrency", 1], ["retries", 0], ["timeout", 1]] as const) {
      if (!((options[name] ?? least) >= least)) throw new HfMetaError("invalidOption", `\`${name}\` must be at least ${least}`);
    }
  }

  /** Reads a range of a file. The part is shorter only if the file ends inside the range. */
  range(url: string, start: number, end: number): Promise<Part> {
    return this.send(url, { Range: `bytes=${start}-${end - 1}` }, async (response) => {
      if (response.status === 416) {
        const size = /^bytes \*\/(\d+)$/.exec(response.headers.get("content-range") ?? "")?.[1];
        if (size !== undefined && Number(size) <= start) return { bytes: new Uint8Array(), size: Number(size) };
      }
      const { offset, length, size } = expected(response, start, end);
      return { bytes: await this.body(response, length, offset), size };
    });
  }

  /** Reads a whole file of at most `limit` bytes. */
  whole(url: string, limit: number): Promise<{ bytes: Uint8Array; response: Response }> {
    return this.send(url, {}, async (response) => {
      const bytes = await this.body(response, limit + 1, 0, true);
      if (bytes.length > limit) throw new HfMetaError("tooLarge", `\`${shown(url)}\` exceeds the limit of ${limit} bytes`);
      return { bytes, response };
    });
  }

  private async send<T>(url: string, headers: Record<string, string>, read: (response: Response) => Promise<T>): Promise<T> {
    for (let attempt = 0; ; attempt++) {
      try {
        return await this.attempt(url, headers, read);
      } catch (error) {
        if (!(error instanceof Transient)) throw error;
        if (attempt >= (this.options.retries ?? 4) || error.wait > MAX_WAIT) throw error.failure;
        const backoff = Math.min(8, 0.25 * 2 ** attempt) * (0.5 + Math.random() / 2);
        await delay(1000 * Math.max(backoff, error.wait), this.options.signal);
      }
    }
  }

  /** Sends a request once there is room for it. */
  private async attempt<T>(url: string, headers: Record<string, string>, read: (response: Response) => Promise<T>): Promise<T> {
    const { accessToken, signal, timeout = 60_000, fetch: send = globalThis.fetch } = this.options;
    if (this.free > 0) this.free--;
    else await new Promise<void>((resolve) => this.waiting.push(resolve));
    // A longer time would not fit into a timer.
    const limit = AbortSignal.timeout(Math.min(timeout, 2 ** 31 - 1));
    try {
      signal?.throwIfAborted();
      this.requests++;
      const authorization = accessToken ? { Authorization: `Bearer ${accessToken}` } : undefined;
      const response = await send(url, {
        headers: { ...headers, ...authorization },
        cache: "no-store",
        signal: signal ? AbortSignal.any([signal, limit]) : limit,
      });
      this.requests += response.redirected ? 1 : 0;
      try {
        if (!response.ok && response.status !== 416) throw refusal(url, response);
        return await read(response);
      } finally {
        // A body that is not read to its end would keep its connection.
        if (!response.bodyUsed) response.body?.cancel().catch(() => undefined);
      }
    } catch (error) {
      signal?.throwIfAborted();
      if (error instanceof HfMetaError || error instanceof Transient) throw error;
      const [code, text] = limit.aborted
        ? (["timeout", `no response within ${timeout / 1000} s from`] as const)
        : (["network", "failed to fetch"] as const);
      const message = `${text} \`${shown(url)}\`: ${error instanceof Error ? error.message : String(error)}`;
      throw new Transient(new HfMetaError(code, message, { cause: error }));
    } finally {
      const next = this.waiting.shift();
      if (next) next();
      else this.free++;
    }
  }

  /** Reads `length` bytes after `offset` bytes, or fewer if `isLimit`. The rest of the body is dropped. */
  private async body(response: Response, length: number, offset: number, isLimit = false): Promise<Uint8Array> {
    const reader = response.body?.getReader();
    const chunks: Uint8Array[] = [];
    let found = 0;
    while (reader && found < offset + length) {
      const { value } = await reader.read();
      if (!value) break;
      this.bytesRead += value.length;
      // Bytes before the offset are not kept.
      const skipped = Math.min(value.length, Math.max(0, offset - found));
      found += value.length;
      chunks.push(value.subarray(skipped));
    }
    reader?.cancel().catch(() => undefined);
    if (found < offset + length && !isLimit) {
      const message = `\`${shown(response.url)}\` sent ${found} of ${offset + length} bytes`;
      throw new Transient(new HfMetaError("network", message));
    }
    const bytes = new Uint8Array(Math.min(length, Math.max(0, found - offset)));
    let at = 0;
    for (const chunk of chunks) {
      bytes.set(chunk.subarray(0, bytes.length - at), at);
      at += chunk.length;
    }
    return bytes;
  }
}

/** Returns the bytes to read from a response. Only a 206 with exactly the requested range, or a whole file, is accepted. */
function expected(response: Response, start: number, end: number): { offset: number; length: number; size: number } {
  const { headers, status } = response;
  const wrong = (reason: string) =>
    new HfMetaError("network", `unexpected response from \`${shown(response.url)}\`: ${reason}`, { status });
  const encoding = headers.get("content-encoding");
  if (encoding && encoding.toLowerCase() !== "identity") throw wrong("the body is compressed");
  if (status === 206) {
    const found = /^bytes (\d+)-(\d+)\/(\d+)$/i.exec(headers.get("content-range") ?? "")?.slice(1).map(Number);
    if (!found) throw wrong("`Content-Range` is missing or malformed");
    const [first, last, size] = found as [number, number, number];
    if (first !== start || last !== Math.min(end, size) - 1) {
      throw wrong(`requested bytes ${start}-${end - 1}, got ${first}-${last} of ${size}`);
    }
    const length = last - first + 1;
    if (Number(headers.get("content-length") ?? length) !== length) throw wrong("the length differs from the range");
    return { offset: 0, length, size };
  }
  if (status !== 200) throw wrong(`status ${status}`);
  if (headers.get("content-type")?.toLowerCase().startsWith("text/html")) throw wrong("it is a web page");
  const size = Number(headers.get("content-length") ?? NaN);
  if (!Number.isSafeInteger(size)) throw wrong("it is a whole file without a `Content-Length`");
  if (start > MAX_SKIPPED) throw wrong("the server does not support ranges");
  const offset = Math.min(start, size);
  return { offset, length: Math.min(end, size) - offset, size };
}

/** Returns the error for a response that is not a success. */
function refusal(url: string, response: Response): HfMetaError | Transient {
  const { headers, status } = response;
  const isForeign = new URL(response.url || url).origin !== new URL(url).origin;
  const text = headers.get("x-error-message");
  const code = CODES[headers.get("x-error-code") ?? ""] ?? codeOf(status, isForeign, text);
  const retryAfter = requiredWait(headers);
  // For a missing repository, the Hub responds with "Invalid username or password."
  const stated = code === "repoNotFound" ? "repository not found or not accessible" : text?.slice(0, 200);
  const reason = stated ? `: ${stated}` : "";
  const message = `\`${shown(url)}\` responded with status ${status}${reason}`;
  const error = new HfMetaError(code, message, { status, ...(retryAfter && { retryAfter }) });
  // A retry starts at the Hub again, which signs a new URL of the CDN.
  return RETRIED.has(status) || (status === 403 && isForeign) ? new Transient(error, retryAfter) : error;
}

function codeOf(status: number, isForeign: boolean, text: string | null): ErrorCode {
  if (status === 429) return "rateLimited";
  if (isForeign) return "refused";
  if (status === 401) return text?.startsWith("Invalid credentials") ? "rejectedToken" : "repoNotFound";
  if (status === 403) return "forbidden";
  return status === 404 || status === 410 ? "fileNotFound" : "refused";
}

/** Returns the seconds to wait, from `Retry-After` or from the rate limit of the Hub. */
function requiredWait(headers: Headers): number | undefined {
  const after = headers.get("retry-after");
  if (after) return /^\d+$/.test(after) ? Number(after) : Math.max(0, (Date.parse(after) - Date.now()) / 1000) || undefined;
  const [, left, reset] = /;\s*r=(\d+);\s*t=(\d+)/.exec(headers.get("ratelimit") ?? "") ?? [];
  return left === "0" ? Number(reset) : undefined;
}

/** Waits. Rejects with the reason of the signal once it is aborted. */
function delay(milliseconds: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const abort = () => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", abort);
      resolve();
    }, milliseconds);
    signal?.addEventListener("abort", abort, { once: true });
  });
}

/** Removes the query of a URL, which may be a signature. */
function shown(url: string): string {
  return url.replace(/\?.*/, "");
}
