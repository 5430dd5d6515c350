// Builds the npm package in `pkg/`: `npm run build`, or `node build.mjs --dev` for a large core that is built quickly.
import { execFileSync } from "node:child_process";
import { copyFileSync, cpSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { build } from "esbuild";
import { compile } from "json-schema-to-typescript";

import { split } from "./split.mjs";

process.chdir(import.meta.dirname);
const root = "../..";
const run = (program, ...args) => execFileSync(program, args, { stdio: "inherit" });
const profile = process.argv.includes("--dev") ? "dev" : "wasm";
const target = "wasm32-unknown-unknown";
const folder = process.env.CARGO_TARGET_DIR ?? `${root}/target`;

run("cargo", "build", "--locked", "-p", "hf-meta-wasm", "--lib", "--target", target, "--profile", profile);
const core = `${folder}/${target}/${profile === "dev" ? "debug" : profile}/hf_meta_wasm.wasm`;
// A workspace that is built has the program.
const bindgen = process.env.HF_META_BINDGEN ? [process.env.HF_META_BINDGEN] : ["cargo", "run", "--locked", "-q", "-p", "hf-meta-wasm", "--example", "bindgen", "--"];
mkdirSync("build", { recursive: true });
const tables = execFileSync("cargo", ["run", "--locked", "-q", "-p", "hf-meta-count", "--example", "tables"], { maxBuffer: 1 << 24 });
run(...bindgen, core, "build");
// The core calls these functions only after it has loaded the second module and the tables. See `Reader::load_second`.
const [first, second] = split(readFileSync("build/core_bg.wasm"), [
  "hf_meta_format::formats::gguf::parser::parse::",
  "hf_meta_format::formats::pytorch::parser::parse::",
  "hf_meta_count::engines::",
  "hf_meta_count::memory::gpu::",
  "<hf_meta_count::memory::gpu::",
  "hf_meta_count::memory::options::",
  "hf_meta_count::results::json::<impl serde_core::ser::Serialize for hf_meta_count::results::engine::",
  "hf_meta_count::results::json::<impl serde_core::ser::Serialize for hf_meta_count::results::verified::",
  "hf_meta_count::memory::usage::Memory::of_ranks::",
  "hf_meta_count::memory::ranks::",
  "hf_meta_inspect::verify::",
  "hf_meta_count::check::repository::Verification::",
  "hf_meta_count::check::rules::",
  "hf_meta_count::check::weight_set::SetCheck::",
  "hf_meta_count::results::verified::VerifyReport::",
  // What follows needs a configuration or the metadata of a GGUF file.
  "hf_meta_count::steps::config_file::ConfigFile::from_json::",
  "hf_meta_count::count::config::Configs::from_config_json::",
  "hf_meta_count::memory::spec::CacheSpec::",
  "hf_meta_count::architectures::architecture::",
  "hf_meta_count::architectures::blueprint::",
  "hf_meta_wasm::metadata::document::",
  "hf_meta_wasm::metadata::thumbnail::",
  "hf_meta_wasm::tensors::plan::",
  "hf_meta_format::read_plan::",
]);
for (const [name, content] of Object.entries({ "first.wasm": first, "second.wasm": second, "tables.txt": tables })) {
  writeFileSync(`build/${name}`, content);
  run(...bindgen, `build/${name}`);
}

// The schema describes every document; the types carry the same names.
const schema = JSON.parse(readFileSync(`${root}/src/docs/schema.json`, "utf8"));
const types = await compile(schema, "Document", { bannerComment: "", additionalProperties: false, unreachableDefinitions: true, format: false });
writeFileSync("js/schema.d.ts", types);
run("node", "node_modules/typescript/bin/tsc");

rmSync("pkg", { recursive: true, force: true });
// Node prints the line of an uncaught error, which must not contain the whole module.
const bundled = { bundle: true, target: "es2022", minify: true, lineLimit: 1000, legalComments: "none", loader: { ".xz": "binary" } };
const license = ["MIT", "APACHE"].map((name) => `LICENSE-${name}`);
for (const format of ["esm", "cjs"]) {
  mkdirSync(`pkg/${format}`, { recursive: true });
  // The core is a separate file of the package, which the first call loads. The second module and the tables are another
  // one, which many models do not need.
  await build({ ...bundled, format, entryPoints: ["js/index.ts"], outdir: `pkg/${format}`, splitting: format === "esm", chunkNames: "[name]" });
  for (const name of ["index", "errors", "hub", "huggingface", "source", "tensor"]) copyFileSync(`build/types/js/${name}.d.ts`, `pkg/${format}/${name}.d.ts`);
  copyFileSync("js/schema.d.ts", `pkg/${format}/schema.d.ts`);
}
writeFileSync("pkg/cjs/package.json", '{ "type": "commonjs" }\n');
// The command and the page import the module of the package.
const external = (path) => ({
  name: "package",
  setup: ({ onResolve }) => onResolve({ filter: /\/index\.js$/ }, () => ({ path, external: true })),
});
const outer = { ...bundled, format: "esm" };
await build({ ...outer, platform: "node", entryPoints: ["js/bin.ts"], outfile: "pkg/bin.js", plugins: [external("./esm/index.js")] });
await build({ ...outer, entryPoints: ["page/page.ts", "page/page.css"], outdir: "pkg/page", plugins: [external("../esm/index.js")] });
copyFileSync("page/index.html", "pkg/page/index.html");
for (const name of license) copyFileSync(`${root}/${name}`, `pkg/${name}`);
cpSync("README.md", "pkg/README.md");
const { scripts, devDependencies, ...published } = JSON.parse(readFileSync("package.json", "utf8"));
writeFileSync("pkg/package.json", JSON.stringify(published, null, 2) + "\n");
