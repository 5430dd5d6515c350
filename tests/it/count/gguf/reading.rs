//! Repositories with GGUF files: the choice of a file, its requests, and its figures on every path.

use std::fs::File as DiskFile;

use hf_meta::{
    Client, CountReport, DiskCache, Dtype, Error, Model, QuantizationNotFound, Source, Weights,
};
use hf_meta_count::count::Configs;
use hf_meta_count::results::{Finding, Severity};
use hf_meta_count::steps::ReportBuilder;
use hf_meta_format::formats::{HeaderErrorKind, WeightsKind};

use super::FileFigures;
use crate::hub::{File, Host, LocalHub, Repo};
use crate::support;

const REPO: &str = "example/Llama-3.2-1B-GGUF";

/// The parameters of Llama 3.2 1B.
const PARAMETERS: u64 = 1_235_814_400;

fn model(hub: &LocalHub) -> Model {
    support::client(hub).model(REPO)
}

fn cdn_requests(hub: &LocalHub) -> usize {
    hub.log().iter().filter(|entry| entry.host == Host::Cdn).count()
}

async fn gguf(model: &Model) -> CountReport {
    match model.inspect().await.unwrap() {
        Weights::Other(files) => files.report,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn the_preferred_quantization_is_read_in_one_range() {
    let hub = support::fixtures_hub();
    let report = gguf(&model(&hub)).await;
    assert_eq!(report.filepaths[0].as_str(), "Llama-3.2-1B-Q4_K_M.gguf");
    assert_eq!((report.format, report.parameter_count.total()), ("gguf", PARAMETERS));
    assert!(report.is_exact() && report.findings.is_empty(), "{:?}", report.findings);
    assert_eq!(cdn_requests(&hub), 1);
    // Two usual names, the listing, the file, and its redirect.
    assert_eq!(report.fetch.requests, 5);
    let described = report.model.unwrap();
    assert_eq!(described.file_type.as_deref(), Some("Q4_K_M"));
    assert_eq!((described.context_length, described.vocabulary), (Some(131_072), Some(500)));
    let sets = report.other_sets.unwrap();
    let sets: Vec<_> =
        sets.iter().map(|set| (set.path.as_str(), set.quantization.as_deref(), set.kind)).collect();
    let expected = [
        ("BF16/Llama-3.2-1B-BF16-*-of-00002.gguf", Some("BF16"), WeightsKind::Model),
        ("Llama-3.2-1B-Q2_K.gguf", Some("Q2_K"), WeightsKind::Model),
        ("Llama-3.2-1B-Q8_0.gguf", Some("Q8_0"), WeightsKind::Model),
        ("mmproj-F16.gguf", Some("F16"), WeightsKind::Projector),
    ];
    assert_eq!(sets, expected);
}

#[tokio::test]
async fn a_chosen_format_skips_the_standard_names() {
    let hub = support::fixtures_hub();
    let report = gguf(&model(&hub).format("gguf")).await;
    assert_eq!((report.fetch.requests, report.parameter_count.total()), (3, PARAMETERS));
    let error = model(&hub).format("onnx").inspect().await.unwrap_err();
    assert!(
        matches!(error, Error::InvalidOption { option: "format", .. }) && error.is_usage(),
        "{error:?}"
    );
    let error = support::client(&hub).model("gpt2").format("gguf").count().await.unwrap_err();
    assert!(matches!(error, Error::FileNotFound { .. }), "{error:?}");
}

#[tokio::test]
async fn a_path_selects_a_quantization_or_a_file() {
    let hub = support::fixtures_hub();
    for (path, file) in [
        ("q8_0", "Llama-3.2-1B-Q8_0.gguf"),
        ("Q2_K", "Llama-3.2-1B-Q2_K.gguf"),
        ("Llama-3.2-1B-Q2_K.gguf", "Llama-3.2-1B-Q2_K.gguf"),
        ("bf16", "BF16/Llama-3.2-1B-BF16-00001-of-00002.gguf"),
        ("BF16/Llama-3.2-1B-BF16-*-of-00002.gguf", "BF16/Llama-3.2-1B-BF16-00001-of-00002.gguf"),
    ] {
        let report = gguf(&model(&hub).path(path)).await;
        assert_eq!(report.filepaths[0].as_str(), file);
        assert_eq!(report.parameter_count.total(), PARAMETERS, "{path}");
    }
    for path in ["q3_k_s", "Q4KM"] {
        let error = model(&hub).path(path).inspect().await.unwrap_err();
        assert_eq!(quantizations(&error), ["BF16", "Q2_K", "Q4_K_M", "Q8_0"], "{path}");
        assert!(error.is_not_found(), "{error:?}");
    }
    let error = support::client(&hub).model("gpt2").path("q3_k_s").count().await.unwrap_err();
    assert!(error.has_no_weights(), "{error:?}");
    let fp16 = Repo::new("org/fp16").file("fp16/model.safetensors", support::weights(&["x"]));
    let hub = LocalHub::start([fp16]).unwrap();
    let weights = support::client(&hub).model("org/fp16").path("fp16").inspect().await.unwrap();
    assert_eq!(weights.report().filepaths[0].as_str(), "fp16/model.safetensors");
}

/// Returns the quantizations that an error offers.
fn quantizations(error: &Error) -> Vec<String> {
    let Error::FileNotFound { source, .. } = error else { panic!("{error:?}") };
    source.downcast_ref::<QuantizationNotFound>().unwrap().quantizations.clone()
}

#[tokio::test]
async fn a_path_selects_a_quantization_in_a_local_folder() {
    let hub = support::fixtures_hub();
    let folder = tempfile::tempdir().unwrap();
    for (quantization, size) in [("Q4_K_M", 799_892_128), ("Q8_0", 1_313_280_672)] {
        let name = format!("Llama-3.2-1B-{quantization}.gguf");
        let file = folder.path().join(&name);
        std::fs::write(&file, fixture(&format!("{REPO}/{name}"))).unwrap();
        DiskFile::options().append(true).open(&file).unwrap().set_len(size).unwrap();
    }
    let source = |path: &str| {
        support::client(&hub).source(Source::Local(folder.path().to_owned())).path(path)
    };
    for (path, file) in [("q8_0", "Llama-3.2-1B-Q8_0.gguf"), ("Q4_K_M", "Llama-3.2-1B-Q4_K_M.gguf")]
    {
        let report = gguf(&source(path)).await;
        assert_eq!(report.filepaths[0].as_str(), file);
        assert_eq!(report.parameter_count.total(), PARAMETERS);
    }
    let error = source("q3_k_s").inspect().await.unwrap_err();
    assert_eq!(quantizations(&error), ["Q4_K_M", "Q8_0"]);
    let error = source("none/q8_0").inspect().await.unwrap_err();
    assert!(matches!(error, Error::FileNotFound { .. }), "{error:?}");
}

#[tokio::test]
async fn the_files_of_a_split_model_are_merged() {
    let hub = support::fixtures_hub();
    let weights = model(&hub).path("bf16").inspect().await.unwrap();
    let names: Vec<_> = weights.files().map(|(path, _)| path.to_string()).collect();
    assert_eq!(
        names,
        [
            "BF16/Llama-3.2-1B-BF16-00001-of-00002.gguf",
            "BF16/Llama-3.2-1B-BF16-00002-of-00002.gguf"
        ]
    );
    let report = weights.report();
    assert_eq!(report.parameter_count.totals().tensors, 146);
    assert_eq!(report.model.as_ref().unwrap().files, Some(2));
    assert_eq!(report.parameter_count.get(&Dtype::BF16), PARAMETERS - 33 * 2_048);
    assert!(report.sharded);
}

/// Some programs repeat the architecture in every file, but only the first file describes the model.
#[test]
fn the_first_file_of_a_split_model_describes_it() {
    let text = |text: &str| [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat();
    let part = |keys: &[&str]| {
        let key = |key: &&str| [text(key), 8_u32.to_le_bytes().to_vec(), text("llama")].concat();
        let counts = [0, keys.len() as u64].map(u64::to_le_bytes).concat();
        let keys: Vec<_> = keys.iter().flat_map(key).collect();
        [b"GGUF\x03\0\0\0".to_vec(), counts, keys, vec![0; 32]].concat()
    };
    let first = part(&["general.architecture", "tokenizer.ggml.model"]);
    let second = part(&["general.architecture"]);
    let header = |file: &[u8]| super::parse(file, file.len() as u64, usize::MAX).unwrap();
    let headers =
        [("m-00001-of-00002.gguf", header(&first)), ("m-00002-of-00002.gguf", header(&second))];
    let [one, two] = headers;
    for order in [[one.clone(), two.clone()], [two, one]] {
        let pattern = "m-*-of-00002.gguf".parse().unwrap();
        let mut builder = ReportBuilder::new_sharded(&pattern, None, false);
        for (path, header) in order {
            builder.add(path.parse().unwrap(), header);
        }
        let report = builder.finish(&Configs::default()).report(Vec::new()).unwrap();
        let model = report.model.unwrap();
        assert_eq!(model.tokenizer.as_deref(), Some("llama"));
    }
}

#[tokio::test]
async fn safetensors_calls_read_safetensors_only() {
    let hub = support::fixtures_hub();
    let error = model(&hub).parse_safetensors_metadata().await.unwrap_err();
    let Error::NoWeights { other_formats: instead, .. } = error else { panic!("{error:?}") };
    assert_eq!((instead[0].format, instead[0].files), ("GGUF (.gguf)", 6));
    let file = model(&hub).path("Llama-3.2-1B-Q2_K.gguf");
    assert!(file.parse_safetensors_metadata().await.is_err());
}

#[tokio::test]
async fn safetensors_takes_precedence_over_gguf() {
    let header = fixture("example/Llama-3.2-1B-GGUF/Llama-3.2-1B-Q8_0.gguf");
    let repo = Repo::new("org/both")
        .file("model.safetensors", support::weights(&["x"]))
        .file("model-Q8_0.gguf", File::padded(header, 1_321_083_008));
    let hub = support::fixtures_hub_with(repo);
    let model = support::client(&hub).model("org/both").other_sets(true);
    let weights = model.inspect().await.unwrap();
    assert!(matches!(weights, Weights::Safetensors(_)));
    let sets = weights.report().other_sets.clone().unwrap();
    assert_eq!((sets[0].path.as_str(), sets[0].format), ("model-Q8_0.gguf", "gguf"));
    assert_eq!(gguf(&model.format("gguf")).await.parameter_count.total(), PARAMETERS);
}

#[tokio::test]
async fn several_models_are_offered_for_a_choice() {
    let file = || File::padded(fixture("gguf/blocks.gguf"), 10_000);
    let repo = Repo::new("org/two").file("a-Q4_0.gguf", file()).file("b-Q4_0.gguf", file());
    let hub = support::fixtures_hub_with(repo);
    let error = support::client(&hub).model("org/two").count().await.unwrap_err();
    assert!(matches!(&error, Error::SeveralSets { sets, .. } if sets.len() == 2), "{error:?}");
}

#[tokio::test]
async fn experts_are_counted_from_the_header() {
    let hub = support::fixtures_hub();
    for file in ["experts.gguf", "experts-numbered.gguf"] {
        let model = support::client(&hub).model("gguf").path(file);
        let report = model.count().await.unwrap();
        let moe = report.breakdown.moe.unwrap();
        assert_eq!((moe.experts, moe.experts_per_token), (8, 2));
        let expert = 3 * 512 * 256 * 2;
        assert_eq!((moe.per_expert, moe.routed), (Some(expert), 8 * expert));
        assert_eq!(moe.active(), report.parameter_count.total() - 6 * expert);
        assert_eq!(report.fetch.requests, 2);
    }
}

#[tokio::test]
async fn every_fixture_has_as_many_parameters_as_elements() {
    let hub = support::fixtures_hub();
    for (name, figures) in super::oracle().files {
        let model = support::client(&hub).model("gguf").path(name.as_str());
        let report = model.count().await.unwrap();
        let elements = figures.tensors.iter().filter(|tensor| !tensor.shape.is_empty());
        let elements: u64 = elements.map(|tensor| tensor.elements).sum();
        assert_eq!(report.parameter_count.total(), elements, "{name}");
        assert!(report.is_exact(), "{name}");
        assert_eq!(report.fetch.weight_bytes, figures.size, "{name}");
        let bytes: u64 = figures.tensors.iter().map(|tensor| tensor.bytes).sum();
        assert_eq!(report.parameter_count.totals().bytes, bytes, "{name}");
    }
}

#[tokio::test]
async fn complete_files_are_valid() {
    let hub = support::fixtures_hub();
    let model = |path: &str| support::client(&hub).model(super::COMPLETE).path(path);
    let (_, files) = super::complete_files();
    let (parts, files): (Vec<_>, Vec<_>) =
        files.into_iter().partition(|(name, _)| name.contains("-of-"));
    let elements =
        |figures: &FileFigures| figures.tensors.iter().map(|tensor| tensor.elements).sum();
    for (name, figures) in &files {
        let report = model(name).verify().await.unwrap();
        assert_eq!(report.findings(), [], "{name}");
        assert_eq!(report.parameters().counted, Some(elements(figures)), "{name}");
        assert_eq!(report.fetch.weight_bytes, figures.size, "{name}");
    }
    let report = model("Tiny-split-*-of-00003.gguf").verify().await.unwrap();
    assert_eq!((report.findings(), report.sets[0].files), (Vec::new(), 3));
    let sum: u64 = parts.iter().map(|(_, figures)| elements(figures)).sum();
    assert_eq!(report.parameters().counted, Some(sum));
    let moe = model("Tiny-MoE-Q4_K_M.gguf").count().await.unwrap().breakdown.moe.unwrap();
    assert_eq!((moe.experts, moe.experts_per_token, moe.routed), (4, 2, 3 * 4 * 2 * 512 * 256));
}

pub(crate) fn fixture(name: &str) -> Vec<u8> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures");
    std::fs::read(std::path::Path::new(folder).join(name)).unwrap()
}

/// A header with a vocabulary of this many tokens with scores, in front of one tensor.
fn with_vocabulary(tokens: usize) -> Vec<u8> {
    let text = |text: &str| [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat();
    let list = |key: &str, kind: u32, elements: Vec<u8>| {
        let head = [text(key), 9_u32.to_le_bytes().to_vec(), kind.to_le_bytes().to_vec()].concat();
        [head, (tokens as u64).to_le_bytes().to_vec(), elements].concat()
    };
    let words = (0..tokens).flat_map(|token| text(&format!("token {token}"))).collect();
    [
        b"GGUF\x03\0\0\0\x01\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0".to_vec(),
        text("general.architecture"),
        8_u32.to_le_bytes().to_vec(),
        text("llama"),
        text("tokenizer.ggml.model"),
        8_u32.to_le_bytes().to_vec(),
        text("llama"),
        list("tokenizer.ggml.tokens", 8, words),
        list("tokenizer.ggml.scores", 6, vec![7; 4 * tokens]),
        list("tokenizer.ggml.token_type", 5, vec![7; 4 * tokens]),
        text("x"),
        1_u32.to_le_bytes().to_vec(),
        64_u64.to_le_bytes().to_vec(),
        vec![0; 4 + 8],
    ]
    .concat()
}

/// The first range ends in the vocabulary, or in the scores behind it, which are skipped.
#[tokio::test]
async fn a_large_header_needs_two_ranges_and_is_cached() {
    for tokens in [50_000, 60_000, 100_000] {
        let header = with_vocabulary(tokens);
        let size = header.len() as u64 + 31 + 256;
        let repo = Repo::new("org/large").file("x-Q4_0.gguf", File::padded(header, size));
        let hub = LocalHub::start([repo]).unwrap();
        let cache = tempfile::tempdir().unwrap();
        let client = Client::builder().endpoint(hub.endpoint());
        let client = client.header_cache(DiskCache::new(cache.path())).build().unwrap();
        let fresh = client.model("org/large").count().await.unwrap();
        assert_eq!(cdn_requests(&hub), 2, "{tokens} tokens");
        assert_eq!(fresh.model.as_ref().unwrap().vocabulary, Some(tokens as u64));
        let cached = client.model("org/large").count().await.unwrap();
        assert_eq!((cached.fetch.requests, cdn_requests(&hub)), (1, 2));
        assert_eq!((cached.model, cached.parameter_count), (fresh.model, fresh.parameter_count));
    }
}

#[tokio::test]
async fn local_files_and_urls_match_the_repository() {
    let hub = support::fixtures_hub();
    let expected = gguf(&model(&hub)).await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("Llama-3.2-1B-Q4_K_M.gguf");
    std::fs::copy(
        concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../fixtures/example/Llama-3.2-1B-GGUF/Llama-3.2-1B-Q4_K_M.gguf"
        ),
        &path,
    )
    .unwrap();
    let file = DiskFile::options().write(true).open(&path).unwrap();
    file.set_len(expected.fetch.weight_bytes).unwrap();
    let url = format!("{}/{REPO}/resolve/main/Llama-3.2-1B-Q4_K_M.gguf", hub.endpoint());
    let client = support::client(&hub);
    for source in [
        Source::Local(path),
        Source::Local(folder.path().to_owned()),
        Source::Url(url.parse().unwrap()),
        Source::parse(&url, client.endpoint()).unwrap(),
    ] {
        let report = gguf(&client.source(source)).await;
        assert_eq!(report.parameter_count, expected.parameter_count);
        assert_eq!(report.model, expected.model);
    }
}

#[tokio::test]
async fn verify_finds_tensors_beyond_the_end() {
    let hub = support::fixtures_hub();
    for path in ["q4_k_m", "bf16", "mmproj-F16.gguf"] {
        let report = model(&hub).path(path).verify().await.unwrap();
        // The fixture is shortened: it has 500 tokens and few keys.
        let is_cut = |finding: &Finding| match finding {
            Finding::Mismatch(found) => found.key == "tokenizer.ggml.tokens",
            Finding::MissingKey { key, .. } => {
                key.ends_with("epsilon") || key.ends_with("head_count")
            }
            _ => false,
        };
        assert!(report.findings().iter().all(is_cut), "{path}: {:?}", report.findings());
        assert_eq!(report.findings().is_empty(), path.starts_with("mmproj"), "{path}");
    }
    let one = model(&hub).path("BF16/Llama-3.2-1B-BF16-00001-of-00002.gguf");
    let report = one.verify().await.unwrap();
    let mismatch = |unit, declared, found| Finding::SplitMismatch { unit, declared, found };
    let file = "BF16/Llama-3.2-1B-BF16-00001-of-00002.gguf".to_owned();
    let single = Finding::SingleShard { file, number: 1, total: 2 };
    assert_eq!((report.is_valid(), report.is_complete()), (true, false));
    assert_eq!(report.findings(), std::slice::from_ref(&single));
    let expected = [mismatch("files", 2, 1), mismatch("tensors", 146, 74), single];
    assert_eq!(one.count().await.unwrap().findings, expected);
    let header = fixture("example/Llama-3.2-1B-GGUF/Llama-3.2-1B-Q8_0.gguf");
    let repo = Repo::new("org/cut").file("x-Q8_0.gguf", File::padded(header, 1_000_000));
    let hub = LocalHub::start([repo]).unwrap();
    let report = support::client(&hub).model("org/cut").verify().await.unwrap();
    let [Finding::MalformedHeader { reason, .. }] = &report.findings()[..] else {
        panic!("{:?}", report.findings())
    };
    assert_eq!(reason.kind, HeaderErrorKind::FileSizeMismatch);
    assert!(reason.message.ends_with("but it has 1000000 bytes"), "{reason}");
    assert_eq!(report.findings()[0].severity(), Severity::Error);
    let error = support::client(&hub).model("org/cut").count().await.unwrap_err();
    assert_eq!(error.to_string(), "`org/cut/x-Q8_0.gguf` is not a valid GGUF file");
}
