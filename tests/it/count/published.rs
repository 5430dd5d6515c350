//! Models whose counts are in the tests of huggingface.js, most of them quantized.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::hub::{File, LocalHub};
use crate::models::{self, Model};
use crate::support;

type CountReport = &'static [(&'static str, u64)];

/// The published figures of a model.
struct Published {
    files: usize,
    tensors: u64,
    /// The bytes of the index, of all headers with their length prefixes, and of all weights.
    bytes: [u64; 3],
    /// Parameters per dtype as huggingface.js counts them: packed weights unpacked, without auxiliary tensors.
    parameters: CountReport,
    /// Elements per dtype, as stored.
    elements: CountReport,
    /// The number of experts, of experts per token, and of active parameters.
    active: Option<(u64, u64, u64)>,
}

/// Compares the published figures with those that a client reads. There must be no findings.
async fn check(model: Model, published: Published) {
    let repo = support::repo_from_model(&model);
    let index =
        repo.find_file(&model.commit(), "model.safetensors.index.json").map_or(0, File::size);
    let hub = LocalHub::start([repo]).unwrap();
    let parsed = support::parse(&hub, model.repo).await.unwrap();
    let mut summary = serde_json::to_value(parsed.report()).unwrap();
    let counted = support::client(&hub).model(model.repo).count().await.unwrap();
    let mut counted = serde_json::to_value(counted).unwrap();
    for figures in [&mut summary, &mut counted] {
        figures["fetch"]["seconds"] = json!(0);
    }
    assert_eq!(counted, summary, "without keeping headers");
    let counts = |counts: CountReport| json!(counts.iter().copied().collect::<BTreeMap<_, _>>());
    assert_eq!(summary["parameterCount"], counts(published.parameters));
    assert_eq!(summary["elementCount"], counts(published.elements));
    let moe = parsed.report().breakdown.moe;
    assert_eq!(moe.map(|moe| (moe.experts, moe.experts_per_token, moe.active())), published.active);
    assert_eq!(parsed.parameter_count().totals().tensors, published.tensors);
    assert_eq!(parsed.files().count(), published.files);
    let headers = parsed.files().map(|(_, header)| 8 + header.length()).sum();
    assert_eq!([index, headers, parsed.report().fetch.weight_bytes], published.bytes);
    assert_eq!(parsed.report().findings, []);
}

/// Returns a model that is also a fixture.
fn fixture(repo: &str) -> Model {
    models::published().into_iter().find(|model| model.repo == repo).unwrap()
}

#[tokio::test]
async fn bert() {
    let published = Published {
        files: 1,
        tensors: 206,
        bytes: [0, 24_056, 440_449_768],
        parameters: &[("F32", 110_106_428)],
        elements: &[("F32", 110_106_428)],
        active: None,
    };
    check(fixture("google-bert/bert-base-uncased"), published).await;
}

#[tokio::test]
async fn gpt_oss_20b() {
    let published = Published {
        files: 3,
        tensors: 459,
        bytes: [38_210, 52_640, 13_761_317_408],
        parameters: &[("BF16", 1_804_459_584), ("U8", 19_110_297_600)],
        elements: &[("BF16", 1_804_459_584), ("U8", 9_555_148_800 + 597_196_800)],
        active: Some((32, 4, 4_187_440_704)),
    };
    check(fixture("openai/gpt-oss-20b"), published).await;
}

#[tokio::test]
async fn gpt_oss_120b() {
    let published = Published {
        files: 15,
        tensors: 687,
        bytes: [57_278, 78_168, 65_248_893_912],
        parameters: &[("BF16", 2_167_371_072), ("U8", 114_661_785_600)],
        elements: &[("BF16", 2_167_371_072), ("U8", 57_330_892_800 + 3_583_180_800)],
        active: Some((128, 4, 5_711_982_912)),
    };
    check(models::gpt_oss_120b(), published).await;
}

/// Before huggingface.js left out auxiliary tensors, it counted 8,248,929,342 here: each `U8` element twice, and each
/// other element once.
#[tokio::test]
async fn llama_in_bitsandbytes() {
    let published = Published {
        files: 1,
        tensors: 1411,
        bytes: [0, 168_432, 5_702_746_383],
        parameters: &[("BF16", 1_050_939_392), ("U8", 6_979_321_856)],
        elements: &[("BF16", 1_050_939_392), ("F32", 486_912), ("U8", 3_598_751_519)],
        active: None,
    };
    check(fixture("unsloth/Meta-Llama-3.1-8B-Instruct-bnb-4bit"), published).await;
}

#[tokio::test]
async fn llama_in_gptq() {
    let published = Published {
        files: 2,
        tensors: 1187,
        bytes: [96_181, 132_592, 5_735_720_432],
        parameters: &[("F16", 1_050_939_392), ("I32", 6_979_321_856)],
        elements: &[("F16", 1_106_841_600), ("I32", 880_476_160)],
        active: None,
    };
    check(models::llama_gptq(), published).await;
}

#[tokio::test]
async fn llama_in_compressed_tensors() {
    let published = Published {
        files: 8,
        tensors: 2403,
        bytes: [210_204, 275_848, 39_525_587_080],
        parameters: &[("BF16", 2_102_665_216), ("I32", 68_451_041_280)],
        elements: &[("BF16", 2_637_438_976), ("I32", 8_562_606_080), ("I64", 1120)],
        active: None,
    };
    check(fixture("RedHatAI/Llama-3.3-70B-Instruct-quantized.w4a16"), published).await;
}

/// The Hub itself shows the number of elements, 684,531,386,000. The files in the repository have 688,586,727,753 bytes: their
/// writer did not sort the tensors, so the headers are 3 % longer.
#[tokio::test]
async fn deepseek_r1() {
    let published = Published {
        files: 163,
        tensors: 91_991,
        bytes: [8_898_324, 11_539_400, 688_586_378_760],
        parameters: &[("BF16", 3_918_786_560), ("F32", 15_104), ("F8_E4M3", 680_571_043_840)],
        elements: &[("BF16", 3_918_786_560), ("F32", 41_555_600), ("F8_E4M3", 680_571_043_840)],
        active: Some((256, 8, 37_552_297_472)),
    };
    check(models::deepseek_r1(), published).await;
}

/// The index in the repository has 23.5 MB.
#[tokio::test]
async fn kimi_k2_5() {
    let published = Published {
        files: 64,
        tensors: 208_550,
        bytes: [23_597_439, 29_797_512, 595_177_990_248],
        parameters: &[("BF16", 12_193_329_648), ("F32", 23_040), ("I32", 1_014_686_023_680)],
        elements: &[("BF16", 43_902_267_888), ("F32", 23_040), ("I32", 126_835_891_200)],
        active: Some((384, 8, 33_332_644_848)),
    };
    check(models::kimi_k2_5(), published).await;
}

/// The files in the repository have the same 864,721,029,744 bytes.
#[tokio::test]
async fn deepseek_v4_pro() {
    let published = Published {
        files: 64,
        tensors: 145_116,
        bytes: [11_305_685, 16_237_048, 864_721_029_744],
        parameters: &[
            ("BF16", 2_816_899_328),
            ("F32", 87_776_414),
            ("F8_E4M3", 23_169_335_296),
            ("I64", 2_327_040),
            ("I8", 1_572_763_336_704),
        ],
        elements: &[
            ("BF16", 2_816_899_328),
            ("F32", 87_776_414),
            ("F8_E4M3", 23_169_335_296),
            ("F8_E8M0", 49_150_268_416),
            ("I64", 2_327_040),
            ("I8", 786_381_668_352),
        ],
        active: Some((384, 6, 49_781_408_099)),
    };
    check(models::deepseek_v4_pro(), published).await;
}

/// Removes the architecture of a model and of its parts.
fn remove_architecture(config: &mut Value) {
    let Some(config) = config.as_object_mut() else { return };
    config.retain(|key, _| !["model_type", "architectures"].contains(&&**key));
    config.values_mut().for_each(remove_architecture);
}

/// Without the architecture or the configuration, a count is right, or it is marked.
#[tokio::test]
async fn no_published_model_is_silently_wrong() {
    let models = || {
        let more = [models::gpt_oss_120b(), models::llama_gptq()];
        models::documented().into_iter().chain(models::published()).chain(more)
    };
    let count = async |model: &Model| {
        let hub = LocalHub::start([support::repo_from_model(model)]).unwrap();
        support::client(&hub).model(model.repo).count().await.unwrap()
    };
    let mut exact = [0, 0];
    for (at, model) in models().enumerate() {
        let written = count(&model).await;
        let unknown = |mut model: Model| {
            model.documents.iter_mut().for_each(|(_, document)| remove_architecture(document));
            model
        };
        let none = |mut model: Model| {
            model.documents.retain(|(path, _)| !path.ends_with("config.json"));
            model
        };
        let again = || models().nth(at).unwrap();
        let ways =
            [("unknown architecture", unknown(again())), ("no configuration", none(again()))];
        for ((way, model), exact) in ways.iter().zip(&mut exact) {
            let found = count(model).await;
            let name = format!("{}, {way}", model.repo);
            let is_marked = !found.breakdown.is_exact();
            let is_right = found.parameter_count == written.parameter_count;
            assert!(is_right || is_marked, "{name}: {:?}", found.parameter_count);
            let [moe, expected] = [&found, &written].map(|report| report.breakdown.moe);
            let is_active_marked = is_marked
                || found.breakdown.moe_unknown.is_some()
                || moe.is_some_and(|moe| moe.is_upper_bound);
            let [active, expected] = [moe, expected].map(|moe| moe.map(|moe| moe.active()));
            assert!(active == expected || is_active_marked, "{name}: {active:?}");
            *exact += usize::from(is_right && !is_marked);
        }
    }
    assert!(exact[0] > 10 && exact[1] > 10, "{exact:?} of {}", models().count());
}
