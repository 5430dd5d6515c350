//! Sizes that transformers and vLLM have. Add a test here for a size that a script of `tests/oracles` measures.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::*;
use crate::architectures::architecture::Definitions;
use crate::count::tests::assert_stated;
use hf_meta_format::base::json_object::{JsonObject, parse, standard_json};
use hf_meta_format::formats::TensorInfo;

/// Compares with the elements in the cache objects of transformers; see `tests/oracles/memory.py`.
#[test]
fn caches_have_the_size_of_those_of_transformers() {
    // The page has a row for the defaults of all classes, and one for chosen configurations.
    let tables = [
        include_str!("../../../../../fixtures/memory/transformers.tsv").to_owned(),
        include_str!("../../../../../fixtures/memory/configs.tsv").to_owned()
            + include_str!("../../../../../fixtures/memory/configs-earlier.tsv"),
    ];
    let (mut differences, mut unknown) = (Vec::new(), BTreeSet::new());
    let [classes, chosen] = tables.map(|table| {
        let mut sizes = ComparedSizes::default();
        for line in table.lines().filter(|line| !line.starts_with('#')) {
            sizes.add(line, &mut differences, &mut unknown);
        }
        sizes
    });
    assert!(differences.is_empty(), "{} differ:\n{}", differences.len(), differences.join("\n"));
    assert_eq!(
        unknown,
        BTreeSet::from(["encoder-decoder", "nemo_speechlm", "xlstm"].map(str::to_owned))
    );
    let ComparedSizes { rows, equal, .. } = &classes;
    assert_stated(&[
        (
            "README.md",
            format!(
                "| {equal} of {rows} | no estimate | no estimate | {} of {rows} |",
                classes.theirs[0]
            ),
        ),
        (
            "src/docs/memory.md",
            format!("| {} architectures | {classes} |", classes.architectures.len()),
        ),
        ("src/docs/memory.md", format!("| chosen configurations | {chosen} |")),
    ]);
}

/// The configurations whose caches were compared.
#[derive(Default)]
struct ComparedSizes {
    rows: usize,
    architectures: BTreeSet<String>,
    /// Equal ones, and unknown ones.
    equal: usize,
    unknown: usize,
    /// The same of hf-mem.
    theirs: [usize; 2],
}

impl ComparedSizes {
    /// Adds a line of a table: a configuration, numbers of tokens, the elements, and the elements that hf-mem counts.
    fn add(&mut self, line: &str, differences: &mut Vec<String>, unknown: &mut BTreeSet<String>) {
        let [config, tokens, expected, theirs] = line.split('\t').collect::<Vec<_>>()[..] else {
            panic!("{line}")
        };
        let json = standard_json(config.as_bytes());
        let object: JsonObject<'_> = parse(&json).unwrap();
        self.rows += 1;
        self.architectures.extend(object.get("model_type"));
        self.theirs[0] += usize::from(theirs == expected);
        self.theirs[1] += usize::from(theirs == "-");
        let mut is_equal = true;
        for (tokens, expected) in tokens.split(' ').zip(expected.split(' ')) {
            let found = elements(config, tokens.parse().unwrap());
            is_equal &= found == Ok(Some(expected.parse().unwrap()));
            if let Err(CacheError::UnknownArchitecture { architecture }) = found {
                unknown.insert(architecture);
                self.unknown += 1;
                break;
            } else if !is_equal {
                differences.push(format!("{config} at {tokens}: {expected}, found {found:?}"));
            }
        }
        self.equal += usize::from(is_equal);
    }
}

/// The cells of the page, for us and for hf-mem.
impl fmt::Display for ComparedSizes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rows, equal, unknown, theirs: [their_equal, their_unknown], .. } = self;
        let unknown = if *unknown > 0 { format!(", {unknown} unknown") } else { String::new() };
        write!(
            formatter,
            "{equal} of {rows}{unknown} | {their_equal} of {rows}, {their_unknown} unknown"
        )
    }
}

/// Returns the options of a plan of vLLM, by their names in the fixture, joined by `+`, and the GPU.
fn vllm_options(names: &str, gpu: Option<&str>) -> MemoryOptions {
    let mut options = MemoryOptions { engine: Engine::Vllm, ..MemoryOptions::default() };
    let vllm = &mut options.vllm;
    let mut gpu = gpu;
    for name in names.split('+') {
        let digits = name.find(|char: char| char.is_ascii_digit()).unwrap_or(name.len());
        let (kind, number) = name.split_at(digits);
        let number = number.parse().ok();
        match (kind, number) {
            // The number of sequences does not change the cache of one of them.
            ("base" | "seqs", _) => {}
            ("fp", Some(8)) => options.cache_dtype = Some(CacheDtype::Fp8),
            ("nohma", _) => vllm.hybrid_manager = false,
            ("nopc", _) => vllm.prefix_caching = false,
            ("nosync", _) => vllm.async_scheduling = false,
            ("mbt", _) => vllm.max_batched_tokens = number,
            ("bs", _) => vllm.block_size = number,
            ("l" | "b", _) => gpu = Some(name),
            ("tp", Some(count)) => vllm.gpus = count,
            ("pp", Some(count)) => vllm.stages = count,
            _ => panic!("{name}"),
        }
    }
    if let Some(gpu) = gpu {
        options.gpus = Some(format!("1024x{gpu}").parse().unwrap());
        options.finish().unwrap();
    }
    options
}

/// Compares with the plans of vLLM in a table. A size is equal to the byte, or unknown. Returns the number of plans that are
/// equal, and of unknown ones by the kind of layers.
fn compare_plans<'t>(table: &'t str, gpu: Option<&str>) -> (u64, BTreeMap<&'t str, u64>) {
    let (mut wrong, mut exact, mut unknown) = (Vec::new(), 0, BTreeMap::new());
    for line in table.lines().filter(|line| !line.starts_with('#')) {
        let [config, kind, plans] = line.split('\t').collect::<Vec<_>>()[..] else {
            panic!("{line}")
        };
        for plan in plans.split(' ') {
            let [name, tokens, bytes, block_size, block_bytes, blocks] =
                plan.split(',').collect::<Vec<_>>()[..]
            else {
                panic!("{plan}")
            };
            let options = vllm_options(name, gpu);
            let options = MemoryOptions { context: tokens.parse().ok(), ..options };
            let spec = CacheSpec::for_options(config.as_bytes(), &options);
            let memory = Memory::new(0, spec, options);
            let Some(found) = memory.plan else {
                *unknown.entry(kind).or_insert(0) += 1;
                continue;
            };
            let found = [
                found.block_size,
                found.bytes_per_block,
                found.blocks,
                memory.total_bytes.unwrap(),
            ];
            let expected = [block_size, block_bytes, blocks, bytes];
            let expected = expected.map(|text| text.parse::<u64>().unwrap());
            if found == expected {
                exact += 1;
            } else {
                wrong.push(format!("{config} {plan}: {found:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
    (exact, unknown)
}

#[test]
fn blocks_are_those_of_vllm() {
    let table = include_str!("../../../../../fixtures/memory/vllm.tsv");
    assert_eq!(
        compare_plans(table, None),
        (331, BTreeMap::from([("mla+indexer", 1), ("other", 20)]))
    );
}

/// Small configurations that differ in every key that a cache depends on; see `tests/oracles/vllm_cache.py`.
#[test]
fn blocks_of_drawn_configurations_are_those_of_vllm() {
    let tables = [
        ("h100", include_str!("../../../../../fixtures/memory/vllm-h100.tsv")),
        ("a100", include_str!("../../../../../fixtures/memory/vllm-a100.tsv")),
        ("b200", include_str!("../../../../../fixtures/memory/vllm-b200.tsv")),
        ("l4", include_str!("../../../../../fixtures/memory/vllm-l4.tsv")),
        ("t4", include_str!("../../../../../fixtures/memory/vllm-t4.tsv")),
    ];
    let found = tables.map(|(gpu, table)| {
        let (exact, unknown) = compare_plans(table, Some(gpu));
        (gpu, exact, unknown.values().sum::<u64>())
    });
    let expected = [
        ("h100", 1_844, 134),
        ("a100", 230, 29),
        ("b200", 250, 44),
        ("l4", 314, 43),
        ("t4", 193, 57),
    ];
    assert_eq!(found, expected);
}

/// A line of the measured weights on each GPU.
#[derive(serde::Deserialize)]
struct MeasuredRanks {
    config: Box<serde_json::value::RawValue>,
    tensors: BTreeMap<String, (String, Vec<u64>)>,
    ranks: BTreeMap<String, serde_json::Value>,
}

/// Compares with the parameters of vLLM's classes. A size is equal to the byte, or unknown.
#[test]
fn weights_are_divided_as_in_vllm() {
    let table = include_str!("../../../../../fixtures/memory/vllm-ranks.jsonl");
    let (mut wrong, mut exact, mut unknown) = (Vec::new(), BTreeMap::new(), BTreeMap::new());
    for line in table.lines() {
        let line: MeasuredRanks = serde_json::from_str(line).unwrap();
        let config: serde_json::Value = serde_json::from_str(line.config.get()).unwrap();
        let kind = config["model_type"].as_str().unwrap().to_owned();
        for (division, measured) in &line.ranks {
            // A class that refuses to be divided has no sizes.
            let serde_json::Value::Array(stages) = measured else { continue };
            let (tp, pp) = division.split_once('x').unwrap();
            let mut options = MemoryOptions::default();
            for (name, value) in [("engine", "vllm"), ("tp", tp), ("pp", pp)] {
                options.set(name, value).unwrap();
            }
            let tensors = line.tensors.iter().map(|(name, (dtype, shape))| {
                (&**name, TensorInfo::new(dtype.as_str().into(), shape.clone(), (0, 0)))
            });
            let json = line.config.get().as_bytes();
            let Some(found) = RankWeights::of_tensors(tensors, json, &options) else {
                *unknown.entry(kind.clone()).or_insert(0) += 1;
                continue;
            };
            let largest = |ranks: &serde_json::Value| {
                ranks.as_array().unwrap().iter().map(|bytes| bytes.as_u64().unwrap()).max()
            };
            let measured: Vec<_> = stages.iter().map(|ranks| largest(ranks).unwrap()).collect();
            let sizes: Vec<_> = found.stages.iter().map(|stage| stage.least).collect();
            if measured == sizes && found.stages.iter().all(|stage| stage.most == stage.least) {
                *exact.entry(kind.clone()).or_insert(0) += 1;
            } else {
                wrong.push(format!("{kind} {division}: {sizes:?}, vLLM {measured:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
    assert_eq!((exact.len(), exact.values().sum::<u64>()), (42, 354));
    assert!(unknown.keys().all(|kind| Definitions::find("rank", kind).is_none()), "{unknown:?}");
}
