import type { WeightSet } from "./schema.js";

/** The codes of the command. */
export type ErrorCode =
  | "changed" | "fileNotFound" | "forbidden" | "gated" | "invalidOption" | "invalidSource" | "malformedHeader"
  | "malformedIndex" | "malformedListing" | "missingShards" | "network" | "noWeights" | "rateLimited" | "refused"
  | "rejectedToken" | "repoNotFound" | "revisionNotFound" | "severalSets" | "timeout" | "tooLarge";

/** What a caller can do about an error, in the options of this package. */
const HINTS: Partial<Record<ErrorCode, string>> = {
  changed: "try again: the files changed while they were read",
  fileNotFound: "check the path",
  forbidden: "set `accessToken` to a token with access to the repository",
  gated: "accept the conditions on the page of the repository, and set `accessToken` to a token of the same account",
  invalidSource: "use org/name, org/name@revision, hf://org/name@revision/path, or the URL of a page on the Hub",
  malformedHeader: "the files are invalid; report this to their author",
  malformedIndex: "call `verify` to list everything that is wrong",
  malformedListing: "the server does not look like a Hub; check `hubUrl`",
  missingShards: "call `verify` to list everything that is missing",
  network: "check the connection and `hubUrl`; in a browser, the server must allow CORS",
  noWeights: "only safetensors, GGUF and PyTorch files can be read; `path` selects a file or a folder",
  rateLimited: "wait for `retryAfter` seconds; the limit is higher with an `accessToken`",
  refused: "try again later",
  rejectedToken: "create a new token at https://huggingface.co/settings/tokens, and set `accessToken`",
  repoNotFound: "check the spelling; a private repository needs an `accessToken` with access to it",
  revisionNotFound: "check the branch, tag or commit",
  severalSets: "set `path` to the path of one of `otherSets`",
  timeout: "set `timeout` to a higher value",
  tooLarge: "raise `maxHeaderBytes`, if you trust the file",
};

interface Details {
  cause?: unknown;
  /** Replaces the hint of the code; `undefined` removes it. */
  hint?: string | undefined;
  status?: number | undefined;
  retryAfter?: number | undefined;
  otherSets?: WeightSet[];
}

/** The error of a call. A call that was aborted rejects with the reason of its signal instead. */
export class HfMetaError extends Error {
  // Bundlers rename classes.
  static override readonly name = "HfMetaError";
  readonly code: ErrorCode;
  /** The next step, if one can help. */
  readonly hint?: string;
  /** The HTTP status, if a response caused the error. */
  readonly status?: number;
  /** The seconds until the server accepts requests again, if it states them. */
  readonly retryAfter?: number;
  /** The weight sets to choose from, if the code is `severalSets`. */
  readonly otherSets?: WeightSet[];

  static {
    // The stack of an error begins with the name that its prototype has.
    Object.defineProperty(this.prototype, "name", { value: this.name, configurable: true, writable: true });
  }

  constructor(code: ErrorCode, message: string, { cause, ...details }: Details = {}) {
    super(message, cause === undefined ? undefined : { cause });
    this.code = code;
    for (const [name, value] of Object.entries({ hint: HINTS[code], ...details })) {
      if (value !== undefined) Object.assign(this, { [name]: value });
    }
  }
}
