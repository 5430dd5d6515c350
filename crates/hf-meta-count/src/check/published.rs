//! Checkpoints as their authors published them are sound, and the same ones with a defect are not.
//!
//! `tests/oracles/published.py` writes the fixtures from rules.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;

use super::SetCheck;
use crate::count::names::pattern::NamePattern;
use crate::count::split_name;
use crate::results::{Finding, Severity};
use crate::steps::{ConfigFile, ReportBuilder};
use hf_meta_format::formats::pytorch::{PickleSummary, TensorView};
use hf_meta_format::formats::{
    Dtype, FileHeader, ModelDescription, RepoPath, TensorInfo, TensorTableBuilder, product,
};

/// Tensors with their dtypes and shapes.
type Tensors = BTreeMap<String, (Dtype, Vec<u64>)>;

/// A published checkpoint.
struct Published {
    head: Value,
    config: String,
    tensors: Tensors,
}

impl Published {
    fn new(text: &str) -> Self {
        let mut lines = text.lines();
        let head = serde_json::from_str(lines.next().unwrap()).unwrap();
        let config = lines.next().unwrap().to_owned();
        let mut tensors = Tensors::new();
        for line in lines {
            let [dtype, shape, names] = line.splitn(3, ' ').collect::<Vec<_>>()[..] else {
                panic!("{line}");
            };
            let sides = shape.split(',').filter(|side| *side != "-");
            let shape: Vec<u64> = sides.map(|side| side.parse().unwrap()).collect();
            let mut found = vec![String::new()];
            for part in names.split_inclusive('}') {
                let (text, numbers) = part.split_once('{').unwrap_or((part, ""));
                for name in &mut found {
                    name.push_str(text);
                }
                if let Some(numbers) = numbers.strip_suffix('}') {
                    let numbers = expand(numbers);
                    let all = found.iter().flat_map(|name| {
                        numbers.iter().map(move |number| format!("{name}{number}"))
                    });
                    found = all.collect();
                }
            }
            tensors.extend(found.into_iter().map(|name| (name, (dtype.into(), shape.clone()))));
        }
        Self { head, config, tensors }
    }

    fn kinds(&self) -> BTreeSet<&str> {
        let kinds = self.head["kinds"].as_array().into_iter().flatten();
        kinds.map(|kind| kind.as_str().unwrap()).collect()
    }

    fn header(&self, tensors: &Tensors) -> FileHeader {
        let (mut builder, mut end) = (TensorTableBuilder::new(), 0);
        for (name, (dtype, shape)) in tensors {
            let bits = product(shape).unwrap() * dtype.bits().unwrap();
            let tensor =
                TensorInfo::new(dtype.clone(), shape.clone(), (end, end + bits.div_ceil(8)));
            end = tensor.data_offsets.1;
            builder.push(name, &tensor);
        }
        let metadata = serde_json::from_value(self.head["metadata"].clone()).unwrap();
        let mut header = FileHeader::new(builder.finish().unwrap(), 0..0).with_metadata(metadata);
        if let Some(architecture) = self.head["metadata"]["general.architecture"].as_str() {
            let mut model = ModelDescription::default();
            let config: Value = serde_json::from_str(&self.config).unwrap();
            (model.architecture, model.vocabulary) =
                (Some(architecture.to_owned()), config["vocab_size"].as_u64());
            (header.model, header.is_self_describing) = (Some(Box::new(model)), true);
        }
        let aliases = self.head["alias"].as_object().into_iter().flatten();
        let views = aliases.map(|(name, stored_in)| {
            let stored_in = stored_in.as_str().unwrap();
            let (dtype, shape) = self.tensors[stored_in].clone();
            TensorView::new(name.clone(), dtype, shape, stored_in.to_owned())
        });
        let mut pickle = PickleSummary::default();
        pickle.views = views.collect();
        if !pickle.views.is_empty() {
            header.pickle = Some(Box::new(pickle));
        }
        header
    }

    /// Returns the errors and warnings about the tensors.
    fn verify(&self, tensors: &Tensors) -> Vec<Finding> {
        let path: RepoPath =
            self.head["file"].as_str().unwrap_or("model.safetensors").parse().unwrap();
        let mut builder = ReportBuilder::new_single(true);
        builder.add(path.clone(), self.header(tensors));
        let shards = [path.clone()];
        let mut found = self.finish(path, builder, &shards);
        found.retain(|finding| finding.severity() > Severity::Note);
        found
    }

    /// Returns all findings about the tensors in three shards, whose headers arrive in an order.
    fn verify_shards(&self, tensors: &Tensors, order: [usize; 3]) -> Vec<Finding> {
        let index: RepoPath = "model.safetensors.index.json".parse().unwrap();
        let shards: Vec<RepoPath> = (1..=3)
            .map(|number| format!("model-0000{number}-of-00003.safetensors").parse().unwrap())
            .collect();
        let mut builder = ReportBuilder::new_sharded(&index, None, true);
        for shard in order {
            let inside = tensors.iter().enumerate().filter(|(at, _)| at % 3 == shard);
            let inside = inside.map(|(_, (name, tensor))| (name.clone(), tensor.clone())).collect();
            builder.add(shards[shard].clone(), self.header(&inside));
        }
        self.finish(index, builder, &shards)
    }

    fn finish(&self, path: RepoPath, builder: ReportBuilder, shards: &[RepoPath]) -> Vec<Finding> {
        let mut check = SetCheck::new(path, shards.len(), builder, shards, &[], Vec::new(), true);
        check.builds_base = self.head["files"].get("modules.json").is_some();
        let config = ConfigFile::from_json(self.config.clone().into_bytes());
        check.finish(&config, Ok(None)).findings()
    }

    fn is_refused(&self, tensors: &Tensors) -> bool {
        self.verify(tensors).iter().any(|finding| finding.severity() == Severity::Error)
    }

    /// Returns the tensors of each layer of the longest list, with the numbers of the layers.
    fn layers(&self) -> BTreeMap<u64, BTreeSet<&str>> {
        let mut lists = BTreeMap::<&str, BTreeMap<u64, BTreeSet<&str>>>::new();
        for name in self.tensors.keys() {
            if let Some(number) = NamePattern::new(name).numbers.first() {
                let layers = lists.entry(&name[..number.start]).or_default();
                layers.entry(number.value).or_default().insert(name);
            }
        }
        let longest = lists.into_values().max_by_key(BTreeMap::len);
        longest.filter(|layers| layers.len() > 2).unwrap_or_default()
    }

    /// Returns the checkpoint with one of eight defects each, with their names.
    fn defects(&self) -> Vec<(&'static str, Tensors)> {
        let layers = self.layers();
        let (Some(last), Some(middle)) =
            (layers.values().next_back(), layers.values().nth(layers.len() / 2))
        else {
            return Vec::new();
        };
        let mut found =
            vec![("the last layer", self.without(last)), ("a layer", self.without(middle))];
        let matrices = self.matrices(middle);
        let (Some(&smallest), Some(&largest)) = (matrices.first(), matrices.last()) else {
            return found;
        };
        let half = |name: &str, side: usize| {
            let mut tensors = self.tensors.clone();
            let (_, shape) = tensors.get_mut(name).unwrap();
            shape[side] = shape[side].div_ceil(2);
            tensors
        };
        found.push(("the largest matrix", self.without(&BTreeSet::from([largest]))));
        found.push(("half of the rows", half(smallest, 0)));
        found.push(("half of the columns", half(largest, 1)));
        let norm = middle.iter().find(|name| {
            let is_vector = self.tensors[**name].1.len() == 1;
            is_vector && name.to_ascii_lowercase().contains("norm") && !name.contains("running")
        });
        found.extend(norm.map(|norm| ("a norm", self.without(&BTreeSet::from([*norm])))));
        let embedding = self.embedding().map(|name| BTreeSet::from([name]));
        found.extend(embedding.map(|name| ("the embedding", self.without(&name))));
        if let Some(module) = smallest.strip_suffix(".weight") {
            let mut renamed = self.without(&BTreeSet::from([smallest]));
            renamed.insert(format!("{module}_renamed.weight"), self.tensors[smallest].clone());
            found.push(("a name", renamed));
        }
        found
    }

    fn without(&self, names: &BTreeSet<&str>) -> Tensors {
        let mut tensors = self.tensors.clone();
        tensors.retain(|name, _| !names.contains(&**name));
        tensors
    }

    /// Returns the weight matrices of a layer, the smallest first.
    fn matrices<'a>(&self, layer: &BTreeSet<&'a str>) -> Vec<&'a str> {
        let shape = |name: &str| &self.tensors[name].1;
        let is_matrix = |name: &&str| {
            let shape = shape(name);
            let is_weight = split_name(name).1.is_weights();
            is_weight && shape.len() == 2 && shape.iter().all(|side| *side > 1)
        };
        let mut matrices: Vec<_> = layer.iter().copied().filter(is_matrix).collect();
        matrices.sort_by_key(|name| (product(shape(name)).unwrap(), *name));
        matrices
    }

    /// Returns the largest embedding that a loader needs: it computes positions, and ties an embedding to its head.
    fn embedding(&self) -> Option<&str> {
        let embeddings = self.tensors.iter().filter(|(name, (_, shape))| {
            shape.len() == 2
                && name.contains("emb")
                && !name.contains("position")
                && NamePattern::new(name).numbers.is_empty()
                && !self.has_twin(name)
        });
        embeddings.max_by_key(|(_, (_, shape))| product(shape)).map(|(name, _)| &**name)
    }

    /// Returns whether a loader has another tensor for a missing embedding: pickles have both names of a tied one, and
    /// files of Falcon, whose class ties its embeddings, store it twice.
    fn has_twin(&self, name: &str) -> bool {
        let aliases = self.head["alias"].as_object();
        let is_alias = aliases.is_some_and(|all| all.values().any(|stored_in| stored_in == name));
        is_alias || self.config.contains(r#""model_type": "falcon""#)
    }
}

/// Returns the numbers of `0-3,7`.
fn expand(text: &str) -> Vec<u64> {
    let ranges = text.split(',').map(|range| range.split_once('-').unwrap_or((range, range)));
    let numbers = ranges
        .flat_map(|(first, last)| first.parse::<u64>().unwrap()..=last.parse::<u64>().unwrap());
    numbers.collect()
}

fn all() -> Vec<(String, Published)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/published");
    let mut paths: Vec<_> = folder.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let read = |path: &std::path::PathBuf| {
        let published = Published::new(&std::fs::read_to_string(path).unwrap());
        (published.head["repo"].as_str().unwrap().to_owned(), published)
    };
    paths.iter().map(read).collect()
}

/// The kinds of names, keys and classes that published checkpoints have and files of today's writers do not.
const KINDS: [&str; 11] = [
    "legacy names",
    "a key that is missing",
    "no architectures",
    "base weights",
    "tied to a stored tensor",
    "other writers",
    "a module with its own recipe",
    "an option of the configuration",
    "the class is not the one of `model_type`",
    "adapters inside a model",
    "GGUF",
];

#[test]
fn published_checkpoints_are_sound() {
    let all = all();
    let (mut errors, mut warned) = (Vec::new(), Vec::new());
    let mut kinds = BTreeSet::new();
    for (repo, published) in &all {
        kinds.extend(published.kinds());
        let found = published.verify(&published.tensors);
        let (serious, others): (Vec<_>, Vec<_>) =
            found.iter().partition(|finding| finding.severity() == Severity::Error);
        errors.extend(serious.iter().map(|finding| format!("{repo}: {finding}")));
        warned.extend(others.first().map(|finding| format!("{repo}: {finding}")));
    }
    assert_eq!(errors, Vec::<String>::new(), "{warned:#?}");
    assert!(warned.len() * 100 <= all.len(), "{warned:#?}");
    assert!(all.len() >= 120, "{}", all.len());
    for kind in KINDS {
        assert!(kinds.contains(&kind), "{kind}");
    }
}

#[test]
fn published_checkpoints_with_a_defect_are_refused() {
    /// Checkpoints with more tensors take long, and have the same kinds of modules as smaller ones.
    const MAX_TENSORS: usize = 300;

    let (mut tried, mut silent) = (0, Vec::new());
    let all = all();
    let is_tried = |(_, published): &&(String, Published)| published.tensors.len() <= MAX_TENSORS;
    for (repo, published) in all.iter().filter(is_tried) {
        for (defect, tensors) in published.defects() {
            tried += 1;
            if !published.is_refused(&tensors) {
                silent.push(format!("{repo}: {defect}"));
            }
        }
    }
    assert!(silent.len() * 100 <= tried * 3, "{} of {tried}: {silent:#?}", silent.len());
    assert!(tried > 300, "{tried}");
}

/// Each architecture has its own keys for the number of stages, and of layers in a stage.
#[test]
fn each_stage_has_all_layers() {
    let all = all();
    let cases = [
        ("microsoft/swin-tiny-patch4-window7-224", "swin.encoder.layers.2.blocks.5."),
        ("naver-clova-ix/donut-base, its encoder", "encoder.layers.1.blocks.3."),
        ("facebook/convnext-tiny-224", "convnext.encoder.stages.3.layers.2."),
        ("microsoft/cvt-13", "cvt.encoder.stages.2.layers.9."),
        ("example/funnel with three blocks", "funnel.encoder.blocks.2."),
        ("google/reformer-crime-and-punishment", "reformer.encoder.layers.5."),
    ];
    for (repo, layer) in cases {
        let published = &all.iter().find(|(name, _)| name == repo).unwrap().1;
        let inside = published.tensors.keys().map(String::as_str);
        let inside: BTreeSet<_> = inside.filter(|name| name.starts_with(layer)).collect();
        assert!(!inside.is_empty() && published.is_refused(&published.without(&inside)), "{repo}");
    }
}

/// EXL3 states the bits of the output embedding apart from those of all other modules.
#[test]
fn the_head_has_its_own_bits() {
    let all = all();
    let is_exl3 = |(repo, _): &&(String, Published)| repo == "example/TinyLlama in exl3-4";
    let Published { head, config, tensors } = &all.iter().find(is_exl3).unwrap().1;
    for (bits, is_refused) in [(6, false), (5, true)] {
        let config = config.replace("\"head_bits\": 6", &format!("\"head_bits\": {bits}"));
        let other = Published { head: head.clone(), config, tensors: tensors.clone() };
        assert_eq!(other.is_refused(tensors), is_refused, "{bits}");
    }
}

/// The headers of shards arrive in any order, and each hash table has another one.
#[test]
fn the_order_of_headers_changes_no_message() {
    const MAX_TENSORS: usize = 300;

    let mut messages = 0;
    for (repo, published) in &all() {
        if published.tensors.len() > MAX_TENSORS {
            continue;
        }
        let defect = published.defects().pop().map(|(_, tensors)| tensors);
        for tensors in std::iter::once(published.tensors.clone()).chain(defect) {
            let found = published.verify_shards(&tensors, [0, 1, 2]);
            assert_eq!(published.verify_shards(&tensors, [2, 0, 1]), found, "{repo}");
            messages += found.len();
        }
    }
    assert!(messages > 100, "{messages}");
}

/// A packed weight is required, whatever the method is.
#[test]
fn published_checkpoints_without_a_packed_weight_are_refused() {
    /// Larger checkpoints take long, and have the same methods.
    const MAX_TENSORS: usize = 10_000;

    let (mut tried, mut silent) = (0, Vec::new());
    let all = all().into_iter().filter(|(_, published)| published.tensors.len() < MAX_TENSORS);
    for (repo, published) in &all.collect::<Vec<_>>() {
        let is_quantized = ["quantization_config", "quantization"]
            .iter()
            .any(|key| published.config.contains(&format!("\"{key}\"")));
        let layers = published.layers();
        let middle = if is_quantized { layers.values().nth(layers.len() / 2) } else { None };
        for name in middle.into_iter().flatten() {
            let (module, component) = split_name(name);
            let has_parts = middle.into_iter().flatten().any(|other| {
                let (found, part) = split_name(other);
                found == module && !part.is_weights()
            });
            if !component.is_weights() || !has_parts {
                continue;
            }
            let mut tensors = published.tensors.clone();
            tensors.remove(*name);
            tried += 1;
            if !published.is_refused(&tensors) {
                silent.push(format!("{repo}: {name}"));
            }
        }
    }
    assert_eq!(silent, Vec::<String>::new());
    assert!(tried > 50, "{tried}");
}
