//! Writes the JavaScript next to a WebAssembly module, and compresses both the module and the tables of layouts:
//! `bindgen MODULE TABLES FOLDER`.
//!
//! A program of this workspace, so that its version is always the one of the library in `Cargo.lock`.

use std::env;
use std::error::Error;
use std::fs;

use wasm_bindgen_cli_support::Bindgen;

/// The highest level. Decompression is equally fast at all levels.
const LEVEL: i32 = 22;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = env::args().skip(1).collect();
    let [module, tables, folder] = &arguments[..] else {
        return Err("usage: bindgen MODULE TABLES FOLDER".into());
    };
    let mut bindgen = Bindgen::new();
    bindgen
        .input_path(module)
        .out_name("core")
        .web(true)?
        .typescript(true)
        .omit_default_module_path(true);
    bindgen.generate(folder)?;
    let layouts = ["layouts.txt", "gguf_layouts.txt"]
        .map(|name| fs::read(format!("{tables}/{name}")))
        .into_iter()
        .collect::<Result<Vec<_>, _>>()?
        .concat();
    let core = fs::read(format!("{folder}/core_bg.wasm"))?;
    for (name, content) in [("core.wasm", core), ("layouts.txt", layouts)] {
        fs::write(format!("{folder}/{name}.zst"), zstd::bulk::compress(&content, LEVEL)?)?;
    }
    Ok(())
}
