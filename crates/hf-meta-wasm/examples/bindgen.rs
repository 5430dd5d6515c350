//! Writes the JavaScript next to a WebAssembly module: `bindgen MODULE FOLDER`.
//!
//! A program of this workspace, so that its version is always the one of the library in `Cargo.lock`.

use std::env;
use std::error::Error;

use wasm_bindgen_cli_support::Bindgen;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = env::args().skip(1).collect();
    let [module, folder] = &arguments[..] else {
        return Err("usage: bindgen MODULE FOLDER".into());
    };
    let mut bindgen = Bindgen::new();
    bindgen
        .input_path(module)
        .out_name("core")
        .web(true)?
        .typescript(true)
        .omit_default_module_path(true);
    Ok(bindgen.generate(folder)?)
}
