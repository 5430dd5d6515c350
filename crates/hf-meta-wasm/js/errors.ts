import type { WeightSet } from "./schema.js";

/** The codes of the command. */
export type ErrorCode =
  | "changed" | "fileNotFound" | "forbidden" | "gated" | "invalidOption" | "invalidSource" | "malformedHeader"
  | "malformedIndex" | "malformedListing" | "missingShards" | "network" | "noWeights" | "rateLimited" | "refused"
  | "rejectedToken" | "repoNotFound" | "revisionNotFound" | "severalSets" | "timeout" | "tooLarge";

/** The error of a call. A call that was aborted rejects with the reason of its signal instead. */
export class HfMetaError extends Error {
  override readonly name = "HfMetaError";
  readonly code: ErrorCode;
  /** The HTTP status, if a response caused the error. */
  readonly status?: number;
  /** The seconds until the server accepts requests again, if it states them. */
  readonly retryAfter?: number;
  /** The weight sets to choose from, if the code is `severalSets`. */
  readonly otherSets?: WeightSet[];

  constructor(
    code: ErrorCode,
    message: string,
    details: { cause?: unknown; status?: number; retryAfter?: number; otherSets?: WeightSet[] } = {},
  ) {
    super(message, details.cause === undefined ? undefined : { cause: details.cause });
    this.code = code;
    for (const name of ["status", "retryAfter", "otherSets"] as const) {
      if (details[name] !== undefined) Object.assign(this, { [name]: details[name] });
    }
  }
}
