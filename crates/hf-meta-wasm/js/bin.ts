#!/usr/bin/env node
import { parseArgs } from "node:util";

import { HfMetaError, diff, inspect, verify, type ReadOptions } from "./index.js";

const USAGE = `hf-meta: the JSON of the command hf-meta, without Rust

usage: hf-meta REPO... [--summary] [--revision REV] [--path PATH] [--weights FORMAT] [--fit SIZE] [--sets]
       hf-meta verify REPO... [--all] [--base REPO] [--revision REV] [--path PATH] [--weights FORMAT]
       hf-meta diff BEFORE AFTER [--ignore-shards]

HF_TOKEN and HF_ENDPOINT are read from the environment.
`;

const [flag, text] = [{ type: "boolean" }, { type: "string" }] as const;
const flags = { summary: flag, sets: flag, all: flag, "ignore-shards": flag, help: { ...flag, short: "h" } } as const;
const texts = { base: text, revision: text, path: text, weights: text, fit: text };

/** Returns the arguments. */
function parsed() {
  try {
    return parseArgs({ allowPositionals: true, options: { ...flags, ...texts } });
  } catch (error) {
    console.error(error instanceof Error ? error.message : error);
    process.exit(2);
  }
}

const { values, positionals } = parsed();
const options = {
  hubUrl: process.env["HF_ENDPOINT"],
  accessToken: process.env["HF_TOKEN"],
  revision: values.revision,
  path: values.path,
  weights: values.weights as ReadOptions["weights"],
  otherSets: values.sets,
  memory: values.fit === undefined ? undefined : { budget: values.fit },
};

/** Prints a document, or the error of a source, as one line. Returns the exit status, which is 1 for invalid weights. */
async function print(source: string, document: Promise<object>): Promise<number> {
  try {
    const found = await document;
    console.log(JSON.stringify(found));
    return "valid" in found && !found.valid ? 1 : 0;
  } catch (error) {
    if (!(error instanceof HfMetaError)) throw error;
    const { code, message, status, retryAfter, otherSets } = error;
    console.log(JSON.stringify({ source, error: { code, message, status, retryAfter }, otherSets }));
    return 1;
  }
}

/** Reads a repository as the options request it. */
function read(repo: string): Promise<object> {
  if (first === "verify") return verify(repo, { ...options, allSets: values.all, base: values.base });
  return values.summary ? inspect(repo, { ...options, summary: true }) : inspect(repo, options);
}

const [first, second = "", third = ""] = positionals;
const isIncomplete = first === "diff" ? positionals.length !== 3 : first === "verify" ? !second : first === undefined;
if (values.help || isIncomplete) {
  console.error(USAGE);
  process.exitCode = values.help ? 0 : 2;
} else if (first === "diff") {
  process.exitCode = await print(second, diff(second, third, { ...options, ignoreShards: values["ignore-shards"] }));
} else {
  for (const repo of first === "verify" ? positionals.slice(1) : positionals) {
    process.exitCode = Math.max(Number(process.exitCode ?? 0), await print(repo, read(repo)));
  }
}
