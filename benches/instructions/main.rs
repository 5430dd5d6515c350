//! Work whose instructions `.ci/instructions` counts: `instructions WORK TIMES` repeats it.
//!
//! Start and end of the program always take the same instructions, so the difference of two runs with different numbers
//! of repetitions is the work alone.

#[path = "../headers/mod.rs"]
mod headers;

use std::env;
use std::error::Error;
use std::hint::black_box;

use hf_meta_count::count::{Counter, ParameterCount};
use hf_meta_format::{SafetensorsFileHeader, SafetensorsIndexJson};
use safetensors::tensor::Metadata;
use serde::de::{DeserializeOwned, IgnoredAny};

type Result<T, E = Box<dyn Error>> = std::result::Result<T, E>;

fn main() -> Result<()> {
    let mut args = env::args().skip(1);
    let work = args.next().unwrap_or_default();
    // Without a number nothing is measured, as when `cargo bench` runs all benchmarks.
    let times: u32 = args.next().and_then(|times| times.parse().ok()).unwrap_or_default();
    match work.as_str() {
        // The numbers of tensors of a small model and of a shard of a large one.
        "header-300" => repeat(times, &headers::header(300)?, SafetensorsFileHeader::from_json),
        "header-3000" => repeat(times, &headers::header(3000)?, SafetensorsFileHeader::from_json),
        "header-3000-count" => repeat(times, &headers::header(3000)?, count),
        // The same work by other crates. These numbers change only with the compiler.
        "header-3000-safetensors" => repeat(times, &headers::header(3000)?, parse::<Metadata>),
        "header-3000-lex" => repeat(times, &headers::header(3000)?, parse::<IgnoredAny>),
        "index-10000" => repeat(times, &headers::index(10_000)?, SafetensorsIndexJson::from_json),
        _ => Ok(()),
    }
}

fn count(json: &[u8]) -> Result<ParameterCount> {
    let mut counter = Counter::new();
    let header = SafetensorsFileHeader::from_json(json)?;
    counter.add_file(&header)?;
    Ok(counter.finish()?.0)
}

fn parse<T: DeserializeOwned>(json: &[u8]) -> serde_json::Result<T> {
    serde_json::from_slice(json)
}

fn repeat<T, E: Into<Box<dyn Error>>>(
    times: u32,
    json: &[u8],
    parse: impl Fn(&[u8]) -> Result<T, E>,
) -> Result<()> {
    for _ in 0..times {
        drop(black_box(parse(black_box(json)).map_err(Into::into)?));
    }
    Ok(())
}
