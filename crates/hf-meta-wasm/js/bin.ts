#!/usr/bin/env node
import { readFileSync } from "node:fs";
import { parseArgs } from "node:util";

import { HfMetaError, Hub, diff, inspect, metadata, verify, type ErrorCode, type ReadOptions } from "./index.js";

const USAGE = `hf-meta: the JSON of the command hf-meta, without Rust

usage: hf-meta REPO... [--summary] [--revision REV] [--path PATH] [--weights FORMAT] [--fit SIZE] [--sets]
       hf-meta REPO... --metadata [--revision REV] [--path PATH] [--weights FORMAT]
       hf-meta verify REPO... [--all] [--strict] [--base REPO] [--revision REV] [--path PATH] [--weights FORMAT]
       hf-meta diff BEFORE AFTER [--ignore-shards]
       hf-meta --version

REPO is org/name, org/name@revision, hf://org/name@revision/path, or the URL of a page on the Hub. The output is
always JSON, one document per line; --json may be given, as for the other command. HF_TOKEN and HF_ENDPOINT are read from the
environment.

exit status: 0 success; 1 no valid weights, or a difference; 2 usage; 3 the Hub or the network failed; 4 stdout failed
`;

const [flag, text] = [{ type: "boolean" }, { type: "string" }] as const;
const flags = { json: flag, summary: flag, metadata: flag, sets: flag, all: flag, strict: flag, "ignore-shards": flag, help: { ...flag, short: "h" }, version: { ...flag, short: "V" } } as const;
const texts = { base: text, revision: text, path: text, weights: text, fit: text };

/** The exit statuses of the command. */
const [CHECK_FAILED, USAGE_ERROR, REMOTE, LOCAL_IO] = [1, 2, 3, 4];
const STATUSES: Partial<Record<ErrorCode, number>> = {
  fileNotFound: CHECK_FAILED, noWeights: CHECK_FAILED, severalSets: CHECK_FAILED, missingShards: CHECK_FAILED,
  malformedHeader: CHECK_FAILED, malformedIndex: CHECK_FAILED, tooLarge: CHECK_FAILED,
  invalidSource: USAGE_ERROR, invalidOption: USAGE_ERROR,
};

/** Returns the arguments. */
function parsed() {
  try {
    return parseArgs({ allowPositionals: true, options: { ...flags, ...texts } });
  } catch (error) {
    console.error(`error: ${error instanceof Error ? error.message : String(error)}`);
    process.exit(USAGE_ERROR);
  }
}

/** Returns a value of the environment, unless it is blank. */
const variable = (name: string) => process.env[name]?.trim() || undefined;

/** Creates the client. Its settings come from the environment. */
function client(): Hub {
  try {
    return new Hub({ hubUrl: variable("HF_ENDPOINT"), accessToken: variable("HF_TOKEN") });
  } catch (error) {
    const { message } = error as HfMetaError;
    console.error(`error: ${message.includes("token") ? "HF_TOKEN" : "HF_ENDPOINT"}: ${message}`);
    process.exit(USAGE_ERROR);
  }
}

/** The names of options in hints, as people set them for the command. */
const NAMES: Record<string, string> = { "an `accessToken`": "HF_TOKEN", "`accessToken`": "HF_TOKEN", "`hubUrl`": "HF_ENDPOINT", "`path`": "--path" };

/** Returns a hint with the names of the command. */
const ofCommand = (hint: string) => Object.entries(NAMES).reduce((text, [option, name]) => text.replaceAll(option, name), hint);

/** Escapes what a terminal would interpret, because messages contain text of servers and files. */
const escaped = (message: string) => message.replace(/[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2066-\u2069]/g, (char) => JSON.stringify(char).slice(1, -1));

/** Prints a document as one line, or the error of a source as a document and to stderr. Returns the exit status. */
async function print(source: string, document: Promise<object>, status: (document: object) => number, least = CHECK_FAILED): Promise<number> {
  try {
    const found = await document;
    console.log(JSON.stringify(found));
    return status(found);
  } catch (error) {
    if (!(error instanceof HfMetaError)) throw error;
    const { code, hint, status, retryAfter, otherSets } = error;
    const message = error.message.replace("`budget`", "`--fit`");
    console.log(JSON.stringify({ source, error: { code, message, status, retryAfter }, otherSets }));
    console.error(escaped(`error: ${source}: ${message}`) + (hint ? `\n  help: ${ofCommand(hint)}` : ""));
    return Math.max(STATUSES[code] ?? REMOTE, least);
  }
}

/** Returns the exit status of a report: a check failed, or a file could not be read. */
function verified(document: object): number {
  const { valid, complete, findings } = document as Awaited<ReturnType<typeof verify>>;
  const isWarned = values.strict === true && findings.some(({ severity }) => severity === "warning");
  return Math.max(valid && !isWarned ? 0 : CHECK_FAILED, complete ? 0 : REMOTE);
}

/** Returns the exit status of a comparison. */
function compared(document: object): number {
  const { changes, renamed, quantized } = document as Awaited<ReturnType<typeof diff>>;
  return changes.length || renamed || quantized ? CHECK_FAILED : 0;
}

process.stdout.on("error", ({ code }: NodeJS.ErrnoException) => process.exit(code === "EPIPE" ? 0 : LOCAL_IO));
const { values, positionals } = parsed();
const [first, second = "", third = ""] = positionals;
const isIncomplete = first === "diff" ? positionals.length !== 3 : first === "verify" ? !second : first === undefined;
if (values.version) {
  const { version } = JSON.parse(readFileSync(new URL("./package.json", import.meta.url), "utf8")) as { version: string };
  console.log(`hf-meta ${version}`);
} else if (values.help || isIncomplete) {
  (values.help ? console.log : console.error)(USAGE);
  process.exitCode = values.help ? 0 : USAGE_ERROR;
} else {
  await run();
}

async function run(): Promise<void> {
  const hub = client();
  const options: ReadOptions = {
    hub,
    revision: values.revision,
    path: values.path,
    weights: values.weights as ReadOptions["weights"],
    otherSets: values.sets,
    memory: values.fit === undefined ? undefined : { budget: values.fit },
  };
  let status = 0;
  if (first === "diff") {
    // As in other programs of this name, 1 means only that there are differences.
    status = await print(`${second} ${third}`, diff(second, third, { hub, ignoreShards: values["ignore-shards"] }), compared, USAGE_ERROR);
  } else {
    const repos = first === "verify" ? positionals.slice(1) : positionals;
    for (const repo of repos) {
      const document = first === "verify" ? verify(repo, { ...options, allSets: values.all, base: values.base })
        : values.metadata ? metadata(repo, options) : values.summary ? inspect(repo, { ...options, summary: true }) : inspect(repo, options);
      status = Math.max(status, await print(repo, document, first === "verify" ? verified : () => 0));
    }
  }
  if (hub.rejectedToken) console.error("warning: the Hub rejected the token of HF_TOKEN; public repositories were read without it");
  process.exitCode = status;
}
