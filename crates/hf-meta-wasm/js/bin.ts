#!/usr/bin/env node
import { parseArgs } from "node:util";

import { HfMetaError, diff, inspect, type ReadOptions } from "./index.js";

const USAGE = `hf-meta: the JSON of the command hf-meta, without Rust

usage: hf-meta REPO... [--summary] [--revision REV] [--path PATH] [--weights FORMAT] [--fit SIZE] [--sets]
       hf-meta diff BEFORE AFTER [--ignore-shards]

HF_TOKEN and HF_ENDPOINT are read from the environment.
`;

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    summary: { type: "boolean" },
    sets: { type: "boolean" },
    "ignore-shards": { type: "boolean" },
    help: { type: "boolean", short: "h" },
    revision: { type: "string" },
    path: { type: "string" },
    weights: { type: "string" },
    fit: { type: "string" },
  },
});
const options = {
  hubUrl: process.env["HF_ENDPOINT"],
  accessToken: process.env["HF_TOKEN"],
  revision: values.revision,
  path: values.path,
  weights: values.weights as ReadOptions["weights"],
  otherSets: values.sets,
  memory: values.fit === undefined ? undefined : { budget: values.fit },
};

/** Prints a document, or the error of a source, as one line. Returns the exit status. */
async function print(source: string, document: Promise<unknown>): Promise<number> {
  try {
    console.log(JSON.stringify(await document));
    return 0;
  } catch (error) {
    if (!(error instanceof HfMetaError)) throw error;
    const { code, message, status, retryAfter, otherSets } = error;
    console.log(JSON.stringify({ source, error: { code, message, status, retryAfter }, otherSets }));
    return 1;
  }
}

const [first, second, third] = positionals;
if (values.help || first === undefined) {
  console.error(USAGE);
  process.exitCode = values.help ? 0 : 2;
} else if (first === "diff" && second !== undefined && third !== undefined) {
  process.exitCode = await print(second, diff(second, third, { ...options, ignoreShards: values["ignore-shards"] }));
} else {
  for (const repo of positionals) {
    const found = values.summary ? inspect(repo, { ...options, summary: true }) : inspect(repo, options);
    process.exitCode = Math.max(Number(process.exitCode ?? 0), await print(repo, found));
  }
}
