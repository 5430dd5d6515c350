import { HfMetaError, type ErrorCode } from "./errors.js";
import { Hub, MAX_WAIT, delay } from "./hub.js";

/** A part of a file, and the size of the file if it is known. */
export interface Part {
  bytes: Uint8Array;
  size?: number;
}

/** Statuses after which a retry may succeed. */
const RETRIED = new Set([408, 429, 500, 502, 503, 504]);

/** The bytes before a range that are read and dropped if a server ignores ranges. Headers begin near the start. */
const MAX_SKIPPED = 1 << 20;

const CODES: Record<string, ErrorCode> = {
  RepoNotFound: "repoNotFound",
  RevisionNotFound: "revisionNotFound",
  EntryNotFound: "fileNotFound",
  GatedRepo: "gated",
};

/** Failures of a request without a token that the rejected token could have prevented. */
const DENIED = new Set<ErrorCode>(["repoNotFound", "gated", "forbidden"]);

/** The repository of a call, as shown in messages. */
export interface Repository {
  repo: string;
  revision: string;
}

/** A failure after which the request is repeated. */
class Transient extends Error {
  constructor(readonly failure: HfMetaError, readonly wait = 0) {
    super(failure.message);
  }
}

/** Sends the requests of a call, and again after transient failures. `name` is what a request reads, as shown in messages. */
export class Http {
  requests = 0;
  bytesRead = 0;

  constructor(readonly hub: Hub, private readonly repository: Repository, private readonly signal?: AbortSignal) {}

  /** Reads a range of a file of `listed` bytes. The part is shorter only if the file ends inside the range. */
  range(name: string, url: string, start: number, end: number, listed?: number): Promise<Part> {
    return this.send(name, url, { Range: `bytes=${start}-${end - 1}` }, async (response) => {
      if (response.status === 416) {
        const size = /^bytes \*\/(\d+)$/.exec(response.headers.get("content-range") ?? "")?.[1];
        if (size !== undefined && Number(size) <= start) return { bytes: new Uint8Array(), size: Number(size) };
      }
      const { offset, length, size } = expected(response, start, end, listed);
      return { bytes: await this.body(response, length, offset), size };
    });
  }

  /** Reads a whole file of at most `limit` bytes. */
  whole(name: string, url: string, limit: number): Promise<{ bytes: Uint8Array; response: Response }> {
    return this.send(name, url, {}, async (response) => {
      const bytes = await this.body(response, limit + 1, 0, true);
      if (bytes.length > limit) throw new HfMetaError("tooLarge", `\`${name}\` exceeds the limit of ${limit} bytes`);
      return { bytes, response };
    });
  }

  private async send<T>(name: string, url: string, headers: Record<string, string>, read: (response: Response) => Promise<T>): Promise<T> {
    const { hub, signal } = this;
    for (let attempt = 0; ; attempt++) {
      const authorization = hub.authorization();
      try {
        return await hub.run(url, signal, () => this.attempt(name, url, { ...headers, ...authorization }, read));
      } catch (error) {
        if (error instanceof HfMetaError && error.code === "rejectedToken" && authorization["Authorization"]) {
          hub.rejectedToken = error;
          attempt--;
          continue;
        }
        if (error instanceof HfMetaError && hub.rejectedToken && DENIED.has(error.code)) throw hub.rejectedToken;
        if (!(error instanceof Transient)) throw error;
        const { failure } = error;
        const wait = Math.max(error.wait, Math.min(8, 0.25 * 2 ** attempt) * (0.5 + Math.random() / 2));
        if (failure.code === "rateLimited") hub.pause(url, wait);
        if (attempt >= (hub.options.retries ?? 4) || wait > MAX_WAIT) throw failure;
        if (failure.code !== "rateLimited") await delay(1000 * wait, signal);
      }
    }
  }

  /** Sends a request once. */
  private async attempt<T>(name: string, url: string, headers: Record<string, string>, read: (response: Response) => Promise<T>): Promise<T> {
    const { timeout = 60_000, fetch: send = globalThis.fetch } = this.hub.options;
    const { signal } = this;
    // A longer time would not fit into a timer.
    const limit = AbortSignal.timeout(Math.min(timeout, 2 ** 31 - 1));
    try {
      this.requests++;
      const response = await send(url, { headers, cache: "no-store", signal: signal ? AbortSignal.any([signal, limit]) : limit });
      this.requests += response.redirected ? 1 : 0;
      try {
        if (!response.ok && response.status !== 416) throw this.refusal(name, url, response);
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
        : (["network", "no response from"] as const);
      const message = `failed to fetch \`${name}\`: ${text} \`${shown(url)}\`: ${error instanceof Error ? error.message : String(error)}`;
      throw new Transient(new HfMetaError(code, message, { cause: error }));
    }
  }

  /** Returns the error for a response that is not a success. */
  private refusal(name: string, url: string, response: Response): HfMetaError | Transient {
    const { headers, status } = response;
    const isForeign = new URL(response.url || url).origin !== new URL(url).origin;
    const text = headers.get("x-error-message");
    const code = CODES[headers.get("x-error-code") ?? ""] ?? codeOf(status, isForeign, text);
    const retryAfter = requiredWait(headers);
    const { repo, revision } = this.repository;
    const messages: Partial<Record<ErrorCode, string>> = {
      repoNotFound: `repository \`${repo}\` not found or not accessible`,
      revisionNotFound: `revision \`${revision}\` not found in \`${repo}\``,
      gated: `repository \`${repo}\` is gated, and access has not been granted`,
      rejectedToken: "the Hub rejected the token",
      forbidden: `access to \`${name}\` denied`,
      fileNotFound: `\`${name}\` not found`,
    };
    const reason = text ? `: ${text.slice(0, 200)}` : "";
    const message = messages[code] ?? `failed to fetch \`${name}\`: \`${shown(url)}\` responded with status ${status}${reason}`;
    const error = new HfMetaError(code, message, { status, retryAfter });
    // A retry starts at the Hub again, which signs a new URL of the CDN.
    return RETRIED.has(status) || (status === 403 && isForeign) ? new Transient(error, retryAfter) : error;
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

/**
 * Returns the bytes to read from a response. Only a 206 with exactly the requested range, or a whole file, is accepted. Some
 * proxies remove `Content-Range`: then the length must end where the range or the listed file ends.
 */
function expected(response: Response, start: number, end: number, listed?: number): { offset: number; length: number; size: number } {
  const { headers, status } = response;
  const wrong = (reason: string) =>
    new HfMetaError("network", `unexpected response from \`${shown(response.url)}\`: ${reason}`, { status });
  const encoding = headers.get("content-encoding");
  if (encoding && encoding.toLowerCase() !== "identity") throw wrong("the body is compressed");
  if (status === 206) {
    const [range, sent] = [headers.get("content-range"), headers.get("content-length")];
    if (range === null && sent && listed !== undefined && Number(sent) === Math.min(end, listed) - start) {
      return { offset: 0, length: Number(sent), size: listed };
    }
    if (range === null) throw wrong(`\`Content-Range\` is missing${proxy(headers)}`);
    const found = /^bytes (\d+)-(\d+)\/(\d+)$/i.exec(range)?.slice(1).map(Number);
    if (!found) throw wrong("`Content-Range` is malformed");
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

/** Names the proxy that may have removed a header. */
function proxy(headers: Headers): string {
  const name = ["via", "x-artifactory-id", "x-jfrog-version", "server"].find((name) => headers.get(name));
  const shown = name ? ` (\`${name}: ${headers.get(name)!.slice(0, 200)}\`)` : "";
  return `, so that the bytes may be other ones than requested; a proxy${shown} may have removed it, or a browser hides it`;
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

/** Removes the query of a URL, which may be a signature. */
function shown(url: string): string {
  return url.replace(/\?.*/, "");
}
