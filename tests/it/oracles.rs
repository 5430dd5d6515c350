//! Counts of checkpoints that real packers wrote, or that follow the definition of their format.
//!
//! `tests/oracles` writes the fixtures.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use hf_meta::count::{Configs, CountBreakdown, Counter};
use hf_meta::{Dtype, SafetensorsFileHeader};
use serde::Deserialize;
use serde_json::value::RawValue;

/// A checkpoint of known size.
#[derive(Deserialize)]
struct QuantizedCase {
    name: String,
    true_parameters: u64,
    config: Option<Box<RawValue>>,
    #[serde(default)]
    files: BTreeMap<String, Box<RawValue>>,
    #[serde(default)]
    tensors: Vec<StoredTensor>,
    #[serde(default)]
    shards: Vec<Vec<StoredTensor>>,
    /// The reason why header and configuration do not show the size.
    inexact: Option<String>,
    #[serde(default)]
    metadata: Option<BTreeMap<String, String>>,
}

#[derive(Deserialize)]
struct StoredTensor {
    name: String,
    dtype: String,
    shape: Vec<u64>,
}

fn cases(folder: &str) -> Vec<QuantizedCase> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(folder);
    let mut paths: Vec<_> = folder.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let read = |path: std::path::PathBuf| {
        serde_json::from_slice(&std::fs::read(&path).unwrap())
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    };
    paths.into_iter().map(read).collect()
}

impl QuantizedCase {
    /// The header of a file with some tensors, one after the other.
    fn header(&self, tensors: &[StoredTensor]) -> SafetensorsFileHeader {
        let mut end = 0;
        let metadata = serde_json::to_string(&self.metadata).unwrap();
        let mut json = format!(r#"{{"__metadata__":{metadata}"#);
        for StoredTensor { name, dtype, shape } in tensors {
            let begin = end;
            let bits = Dtype::from(dtype.as_str()).bits().unwrap();
            end += (shape.iter().product::<u64>() * bits).div_ceil(8);
            write!(
                json,
                r#","{name}":{{"dtype":"{dtype}","shape":{shape:?},"data_offsets":[{begin},{end}]}}"#
            )
            .unwrap();
        }
        SafetensorsFileHeader::from_json((json + "}").as_bytes()).unwrap()
    }

    fn count(&self) -> (u64, CountBreakdown) {
        let mut counter = Counter::new();
        for shard in self.shards.iter().chain([&self.tensors]) {
            counter.add_file(&self.header(shard)).unwrap();
        }
        let config = self.config.as_ref().map_or("{}", |config| config.get());
        let mut configs = Configs::from_config_json(config.as_bytes()).unwrap();
        for file in
            self.files.iter().filter(|(name, _)| name.contains("config")).map(|(_, file)| file)
        {
            configs.add_quantization_json(file.get().as_bytes()).unwrap();
        }
        counter.set_configs(configs);
        let (parameters, breakdown) = counter.finish().unwrap();
        (parameters.total(), breakdown)
    }
}

#[test]
fn quantized_checkpoints_have_their_true_parameters() {
    let mut wrong = Vec::new();
    let cases = cases("quantized");
    for case in &cases {
        let (parameters, breakdown) = case.count();
        let is_right = parameters == case.true_parameters && breakdown.is_exact();
        if is_right == case.inexact.is_none() {
            continue;
        }
        let unresolved: Vec<_> = breakdown.unresolved.iter().map(|found| found.reason).collect();
        wrong.push(format!(
            "{}: {parameters} instead of {}, {unresolved:?}",
            case.name, case.true_parameters
        ));
    }
    assert!(
        wrong.is_empty(),
        "{} of {} are wrong:\n{}",
        wrong.len(),
        cases.len(),
        wrong.join("\n")
    );
}
