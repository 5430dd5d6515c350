//! Writes the JavaScript of a WebAssembly module: `bindgen MODULE FOLDER`. Compresses a file: `bindgen FILE`.
//!
//! A program of this workspace, so that its version is always the one of the library in `Cargo.lock`.

use std::env;
use std::error::Error;
use std::fs;
use std::io::{self, Write};

use lzma_rust2::{CheckType, XzOptions, XzWriter};
use wasm_bindgen_cli_support::Bindgen;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = env::args().skip(1).collect();
    match &arguments[..] {
        [module, folder] => {
            let mut bindgen = Bindgen::new();
            bindgen.input_path(module).out_name("core").typescript(true);
            Ok(bindgen.web(true)?.omit_default_module_path(true).generate(folder)?)
        }
        [file] => Ok(fs::write(format!("{file}.xz"), compress(&fs::read(file)?)?)?),
        _ => Err("usage: bindgen MODULE FOLDER, or bindgen FILE".into()),
    }
}

/// Compresses a file as far as possible. The files of the package are not aligned to words.
fn compress(content: &[u8]) -> io::Result<Vec<u8>> {
    let mut options = XzOptions::with_preset(9);
    options.set_check_sum_type(CheckType::Crc32);
    let settings = &mut options.lzma_options;
    (settings.lc, settings.pb, settings.nice_len) = (4, 0, 273);
    settings.dict_size = 1 << 22;
    let mut writer = XzWriter::new(Vec::new(), options)?;
    writer.write_all(content)?;
    writer.finish()
}
