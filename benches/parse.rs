//! The speed of parsing headers and indexes: `cargo bench -p hf-meta-count --bench parse`.
//!
//! The comparisons are the `safetensors` crate, which checks as much as we do; `Value`, for programs that keep
//! everything and check nothing; and `lex`, which reads the JSON and keeps nothing: no parser on `serde_json` is faster.

#![allow(missing_docs, reason = "the macros of criterion make undocumented items")]

mod headers;

use std::error::Error;
use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkGroup, Criterion, Throughput, measurement::WallTime};
use hf_meta_count::count::{Counter, ParameterCount};
use hf_meta_format::{SafetensorsFileHeader, SafetensorsIndexJson};
use safetensors::tensor::Metadata;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::Value;

type Result<T, E = Box<dyn Error>> = std::result::Result<T, E>;

fn main() -> Result<()> {
    let mut criterion = Criterion::default()
        .sample_size(10)
        .measurement_time(Duration::from_secs(3))
        .configure_from_args();
    for tensors in [300, 90_000, 400_000] {
        header(&mut criterion, tensors)?;
    }
    index(&mut criterion)?;
    criterion.final_summary();
    Ok(())
}

fn header(criterion: &mut Criterion, tensors: usize) -> Result<()> {
    let json = headers::header(tensors)?;
    let mut group = group(criterion, &format!("header/{tensors}"), &json);
    bench(&mut group, "hf_meta", &json, SafetensorsFileHeader::from_json)?;
    bench(&mut group, "hf_meta counts", &json, count)?;
    bench(&mut group, "safetensors", &json, parse::<Metadata>)?;
    others(&mut group, &json)
}

fn index(criterion: &mut Criterion) -> Result<()> {
    let json = headers::index(usize::MAX)?;
    let mut group = group(criterion, "index", &json);
    bench(&mut group, "hf_meta", &json, SafetensorsIndexJson::from_json)?;
    others(&mut group, &json)
}

fn others(group: &mut BenchmarkGroup<'_, WallTime>, json: &[u8]) -> Result<()> {
    bench(group, "Value", json, parse::<Value>)?;
    bench(group, "lex", json, parse::<IgnoredAny>)
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

fn group<'a>(
    criterion: &'a mut Criterion,
    name: &str,
    json: &[u8],
) -> BenchmarkGroup<'a, WallTime> {
    let mut group = criterion.benchmark_group(name);
    group.throughput(Throughput::Bytes(json.len() as u64));
    group
}

/// Measures a parser on an input that it accepts. Giving back the memory is part of the time.
fn bench<T, E: Into<Box<dyn Error>>>(
    group: &mut BenchmarkGroup<'_, WallTime>,
    name: &str,
    json: &[u8],
    parse: impl Fn(&[u8]) -> Result<T, E>,
) -> Result<()> {
    parse(json).map_err(Into::into)?;
    group.bench_function(name, |bencher| bencher.iter(|| parse(black_box(json)).is_ok()));
    Ok(())
}
