import { isPublicHub, parseSource as parseName } from "../build/core.js";

import { load, parse } from "./core.js";
import { HfMetaError } from "./errors.js";

/**
 * A repository: `org/name`, `org/name@revision`, `org/name:Q4_K_M`, `datasets/org/name`, `hf://org/name@revision/path`, the
 * URL of a page on the Hub, or its type and name.
 */
export type Repo = string | { type?: "model" | "dataset" | "space"; name: string };

/**
 * Files that were read by other means, by path: the weight files, and `config.json` if there is one. A file is a `Blob`, or
 * the bytes of its start, which contain the header.
 */
export interface LocalFiles {
  files: Record<string, Uint8Array | Blob>;
  /** The name as shown in results. Default: `files`. */
  name?: string;
}

/** The parts of the name of a repository. */
export interface Source {
  /** The name as shown in results. */
  source: string;
  /** The name, with the prefix of its type, such as `datasets/org/name`. */
  repo: string;
  revision: string;
  path: string | undefined;
}

/**
 * Parses the name of a repository or the URL of one of its pages on the Hub, at `hubUrl` or at `https://huggingface.co`.
 * `revision` and `path` replace the parts in the name.
 */
export async function parseSource(
  repo: Repo,
  options: { hubUrl?: string; revision?: string | undefined; path?: string | undefined } = {},
): Promise<Source> {
  await load();
  const { hubUrl = "https://huggingface.co", revision, path } = options;
  const name = typeof repo === "string" ? repo.trim() : ofType(repo ?? { name: repo });
  for (const [option, text] of Object.entries({ repo: name, revision: revision ?? "", path: path ?? "" })) {
    if (typeof text !== "string") throw ofOption(option, `\`${option}\` is not text`);
  }
  const [page, shown] = hubPage(name, hubUrl) ?? [];
  const parsed = (revision?: string, path?: string, option = "repo") => {
    try {
      return parse<Source>(parseName(page ?? name, page !== undefined, shown, revision, path));
    } catch (error) {
      const { message } = error as Error;
      throw ofOption(option, option === "repo" ? message : `\`${option}\`: ${message}`);
    }
  };
  parsed();
  parsed(revision, undefined, "revision");
  return parsed(revision, path, "path");
}

/** Returns the error of an argument. The hint describes names of repositories. */
function ofOption(option: string, message: string): HfMetaError {
  return new HfMetaError("invalidSource", message, option === "repo" ? {} : { hint: undefined });
}

/** Adds the type of the repository as huggingface.js spells it. */
function ofType({ type = "model", name }: Exclude<Repo, string>): string {
  if (!["model", "dataset", "space"].includes(type)) throw new HfMetaError("invalidSource", `\`${type}\` is not a type of repositories`);
  return type === "model" ? name : `${type}s/${name}`;
}

/** Returns the path of a page on the Hub and the file that it shows. Returns `undefined` for a text that is not a URL. */
function hubPage(text: string, hubUrl: string): [string, string | undefined] | undefined {
  const host = /^[^/]+/.exec(text)?.[0].toLowerCase() ?? "";
  const address = isPublicHub(host) ? `https://${text}` : text;
  if (!/^https?:\/\//i.test(address)) return undefined;
  if (!URL.canParse(address)) throw new HfMetaError("invalidSource", "invalid URL: it is malformed");
  const [url, hub] = [new URL(address), new URL(hubUrl)];
  const base = hub.pathname.replace(/\/+$/, "");
  const shown = url.searchParams.get("show_file_info") ?? undefined;
  if (url.origin === hub.origin && `${url.pathname}/`.startsWith(`${base}/`)) return [url.pathname.slice(base.length), shown];
  if (isPublicHub(url.hostname)) return [url.pathname, shown];
  throw new HfMetaError("invalidSource", `\`${url.origin}\` is not the Hub; pass the content of files of other servers as \`{ files }\``);
}
