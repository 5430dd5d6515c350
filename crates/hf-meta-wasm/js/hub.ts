import { HfMetaError } from "./errors.js";

/** The settings of a client of a Hub. */
export interface HubOptions {
  /** The URL of the Hub. Default: `https://huggingface.co`. */
  hubUrl?: string | undefined;
  /** The access token. It is sent to the origin of the Hub only. If the Hub rejects it, requests are sent without it. */
  accessToken?: string | undefined;
  /** Replaces the `fetch` of the platform. */
  fetch?: typeof fetch;
  /** The maximum number of requests in flight. Default: 64. */
  concurrency?: number;
  /** The maximum number of retries of a request after a transient failure. Default: 4. */
  retries?: number;
  /** The time limit of each attempt in milliseconds. Default: 60,000. */
  timeout?: number;
}

/** The maximum wait that a server may ask for, in seconds. */
export const MAX_WAIT = 60;

/** The maximum additional wait of a request after a pause in milliseconds, so that not all of them are sent at once. */
const JITTER = 250;

/** A group of requests that the Hub limits together. */
type Bucket = "api" | "files";

/**
 * A client of a Hub. Calls with the same client share its limit of requests in flight, its pause after a rate limit, and
 * its token. Without one, each call creates its own.
 */
export class Hub {
  /** The URL of the Hub, without a slash at its end. */
  readonly url: string;
  /** The error of the token, after the Hub has rejected it. All further requests are sent without it. */
  rejectedToken?: HfMetaError;
  /** @internal */
  readonly options: HubOptions;
  private free: number;
  private readonly waiting: (() => void)[] = [];
  private readonly pauses = new Map<Bucket, number>();

  constructor(options: HubOptions = {}) {
    this.options = options;
    this.url = (options.hubUrl ?? "https://huggingface.co").replace(/\/+$/, "");
    this.free = options.concurrency ?? 64;
    if (!/^https?:\/\//i.test(this.url) || !URL.canParse(this.url)) throw new HfMetaError("invalidOption", "`hubUrl` is not the URL of a server");
    if (typeof (options.accessToken ?? "") !== "string") throw new HfMetaError("invalidOption", "`accessToken` is not text");
    // The error of `fetch` would contain the token.
    if (!/^[!-~]*$/.test(options.accessToken ?? "")) throw new HfMetaError("invalidOption", "the token contains invalid characters");
    for (const [name, least] of [["concurrency", 1], ["retries", 0], ["timeout", 1]] as const) {
      if (!((options[name] ?? least) >= least)) throw new HfMetaError("invalidOption", `\`${name}\` must be at least ${least}`);
    }
  }

  /** @internal Returns the header with the token, unless there is none or it was rejected. */
  authorization(): Record<string, string> {
    const { accessToken } = this.options;
    return accessToken && !this.rejectedToken ? { Authorization: `Bearer ${accessToken}` } : {};
  }

  /** @internal Runs a request once there is room for it and no pause. */
  async run<T>(url: string, signal: AbortSignal | undefined, request: () => Promise<T>): Promise<T> {
    if (this.free > 0) this.free--;
    else await this.turn(signal);
    try {
      await this.pauseEnd(url, signal);
      signal?.throwIfAborted();
      return await request();
    } finally {
      const next = this.waiting.shift();
      if (next) next();
      else this.free++;
    }
  }

  /** @internal Pauses all requests of the bucket of this URL, in seconds. */
  pause(url: string, seconds: number): void {
    const bucket = this.bucket(url);
    this.pauses.set(bucket, Math.max(this.pauses.get(bucket) ?? 0, performance.now() + 1000 * seconds));
  }

  /** Waits until another request ends. */
  private turn(signal?: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      if (signal?.aborted) return reject(signal.reason);
      const forget = onAbort(signal, () => {
        this.waiting.splice(this.waiting.indexOf(start), 1);
        reject(signal?.reason);
      });
      const start = () => {
        forget();
        resolve();
      };
      this.waiting.push(start);
    });
  }

  /** Waits for the end of a pause, which other requests may extend. */
  private async pauseEnd(url: string, signal?: AbortSignal): Promise<void> {
    const [bucket, started] = [this.bucket(url), performance.now()];
    for (;;) {
      const end = this.pauses.get(bucket) ?? 0;
      const wait = end - performance.now();
      if (wait <= 0) return;
      if (end - started > 1000 * MAX_WAIT) {
        const retryAfter = Math.ceil(wait / 1000);
        throw new HfMetaError("rateLimited", `\`${this.url}\` accepts no requests for ${retryAfter} s`, { retryAfter });
      }
      await delay(wait + Math.random() * JITTER, signal);
    }
  }

  private bucket(url: string): Bucket {
    return url.startsWith(`${this.url}/api/`) ? "api" : "files";
  }
}

/** Waits. Rejects with the reason of the signal once it is aborted. */
export function delay(milliseconds: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(signal.reason);
    const forget = onAbort(signal, () => {
      clearTimeout(timer);
      reject(signal?.reason);
    });
    const timer = setTimeout(() => {
      forget();
      resolve();
    }, milliseconds);
  });
}

/** What waits for each signal. Node warns about more than ten listeners, and many requests have one signal. */
const aborted = new WeakMap<AbortSignal, Set<() => void>>();

/** Calls a function once a signal is aborted. Returns a function that prevents it. */
function onAbort(signal: AbortSignal | undefined, abort: () => void): () => void {
  if (!signal) return () => undefined;
  const waiting = aborted.get(signal) ?? new Set();
  if (!aborted.has(signal)) {
    aborted.set(signal, waiting);
    signal.addEventListener("abort", () => waiting.forEach((abort) => abort()), { once: true });
  }
  waiting.add(abort);
  return () => void waiting.delete(abort);
}
