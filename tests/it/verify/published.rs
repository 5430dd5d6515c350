//! Checkpoints as their authors published them pass `verify --strict`. `tests/oracles/published.py` writes the fixtures.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::json;

use crate::command::run;
use crate::hub::{File, LocalHub, Repo};
use crate::support;

/// A published checkpoint: its configuration, and its tensors with dtypes and shapes.
struct Published {
    config: String,
    tensors: BTreeMap<String, (String, Vec<u64>)>,
}

impl Published {
    fn read(repo: &str) -> Self {
        let name = repo.replace('/', "--");
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/published");
        let text = std::fs::read_to_string(format!("{folder}/{name}.txt")).unwrap();
        let mut lines = text.lines().skip(1);
        let config = lines.next().unwrap().to_owned();
        let mut tensors = BTreeMap::new();
        for line in lines {
            let [dtype, shape, names] = line.splitn(3, ' ').collect::<Vec<_>>()[..] else {
                panic!("{line}");
            };
            let sides = shape.split(',').filter(|side| *side != "-");
            let tensor = (dtype.to_owned(), sides.map(|side| side.parse().unwrap()).collect());
            let names = expand(names).into_iter();
            tensors.extend(names.map(|name| (name, tensor.clone())));
        }
        Self { config, tensors }
    }

    /// Returns the repository with a single file, or with the named shards and an index.
    fn repo(&self, id: &str, shards: &[String]) -> Repo {
        let file = |tensors: &[(&String, &(String, Vec<u64>))]| {
            let tensors = tensors.iter();
            File::safetensors(
                tensors.map(|(name, (dtype, shape))| (name.as_str(), dtype.as_str(), &shape[..])),
            )
        };
        let all: Vec<_> = self.tensors.iter().collect();
        let config = File::from_bytes(self.config.clone());
        let mut repo = Repo::new(id).file("config.json", config);
        if shards.is_empty() {
            return repo.file("model.safetensors", file(&all));
        }
        let mut index = Vec::new();
        for (tensors, shard) in all.chunks(all.len().div_ceil(shards.len())).zip(shards) {
            repo = repo.file(shard, file(tensors));
            index.extend(tensors.iter().map(|(name, _)| (name.as_str(), shard.as_str())));
        }
        repo.file("model.safetensors.index.json", support::index(&index))
    }
}

/// Returns the names for `layers.{0-2,4}.weight`.
fn expand(names: &str) -> Vec<String> {
    let mut found = vec![String::new()];
    for part in names.split_inclusive('}') {
        let (text, numbers) = part.split_once('{').unwrap_or((part, ""));
        for name in &mut found {
            name.push_str(text);
        }
        let Some(numbers) = numbers.strip_suffix('}') else { continue };
        let ranges =
            numbers.split(',').map(|range| range.split_once('-').unwrap_or((range, range)));
        let number = |text: &str| text.parse::<u64>().unwrap();
        let numbers: Vec<_> =
            ranges.flat_map(|(first, last)| number(first)..=number(last)).collect();
        let with_numbers = found.iter().flat_map(|name| {
            numbers.iter().map(|number| format!("{name}{number}")).collect::<Vec<_>>()
        });
        found = with_numbers.collect();
    }
    found
}

/// The modules of an encoder that averages its outputs.
fn with_modules(repo: Repo) -> Repo {
    let modules = [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")];
    let pooling = json!({"word_embedding_dimension": 768, "pooling_mode_mean_tokens": true});
    repo.file("modules.json", support::modules_json(&modules))
        .file("1_Pooling/config.json", File::from_bytes(pooling.to_string()))
}

#[test]
fn the_most_used_checkpoints_pass_a_strict_verification() {
    let numbered = |numbers: std::ops::RangeInclusive<u32>, width: usize, last: u32| {
        let name = |number| format!("model-{number:05}-of-{last:0width$}.safetensors");
        numbers.map(name).collect::<Vec<_>>()
    };
    let cases = [
        ("google-bert/bert-base-uncased", Vec::new()),
        ("sentence-transformers/all-mpnet-base-v2", Vec::new()),
        ("google/flan-t5-base", Vec::new()),
        ("facebook/wav2vec2-base-960h", Vec::new()),
        ("deepseek-ai/DeepSeek-R1", numbered(1..=163, 6, 163)),
        ("openai/gpt-oss-20b", numbered(0..=2, 5, 2)),
    ];
    let repos = cases.iter().map(|(id, shards)| {
        let repo = Published::read(id).repo(id, shards);
        if id.starts_with("sentence-transformers/") { with_modules(repo) } else { repo }
    });
    let hub = LocalHub::start(repos).unwrap();
    let mut transcripts = String::new();
    for (id, _) in cases {
        let ran = run(&hub, &["verify", "--strict", id]);
        let (code, output) = (ran.code, format!("{}{}", ran.stdout, ran.stderr));
        writeln!(transcripts, "$ hf-meta verify --strict {id}\n{output}exit code {code}\n")
            .unwrap();
    }
    insta::assert_snapshot!(transcripts);
}
