//! The nine models whose counts are documented.

use hf_meta::SafetensorsParseFromRepo;

use crate::support;

/// Repository, number of weight files, number of tensors, and parameters per dtype.
type Documented = (&'static str, usize, u64, &'static [(&'static str, u64)]);

/// The parameters are from the page "Metadata Parsing" of the safetensors documentation; the numbers of tensors are
/// sums over the modules of each architecture.
const DOCUMENTED: [Documented; 9] = [
    ("gpt2", 1, 160, &[("F32", 137_022_720)]),
    ("roberta-base", 1, 203, &[("I64", 514), ("F32", 124_697_433)]),
    ("Jean-Baptiste/camembert-ner", 1, 200, &[("I64", 514), ("F32", 110_035_205)]),
    ("roberta-large", 1, 395, &[("I64", 514), ("F32", 355_412_057)]),
    ("distilbert-base-german-cased", 1, 105, &[("F32", 67_431_550)]),
    ("EleutherAI/gpt-neox-20b", 46, 664, &[("U8", 184_549_376), ("F16", 20_554_568_208)]),
    ("bigscience/bloom-560m", 1, 293, &[("F16", 559_214_592)]),
    ("bigscience/bloom", 72, 845, &[("BF16", 176_247_271_424)]),
    ("bigscience/bloom-3b", 1, 365, &[("F16", 3_002_557_440)]),
];

#[tokio::test]
async fn counts_match_the_documentation() {
    let hub = support::fixtures_hub();
    let client = support::client(&hub);
    for (repo, files, tensors, counts) in DOCUMENTED {
        let parsed = client.model(repo).parse_safetensors_metadata().await.unwrap();
        let mut found: Vec<_> =
            parsed.parameter_count().iter().map(|(dtype, n)| (dtype.as_str(), n)).collect();
        found.sort_by_key(|(_, count)| *count);
        assert_eq!(found, counts, "{repo}");
        assert_eq!(parsed.parameter_count().totals().tensors, tensors, "{repo}");
        assert_eq!(parsed.files().count(), files, "{repo}");
        assert_eq!(parsed.report().sharded, files > 1, "{repo}");
        assert_eq!(parsed.report().findings, [], "{repo}");
    }
}

#[tokio::test]
async fn gpt2_as_the_documentation_shows_it() {
    let hub = support::fixtures_hub();
    let parsed = support::parse(&hub, "gpt2").await.unwrap();
    let SafetensorsParseFromRepo::Single(file) = &parsed else { panic!("gpt2 is one file") };
    let tensor = file.header.tensors().get("h.10.ln_1.weight").unwrap();
    assert_eq!((tensor.dtype.as_str(), &*tensor.shape), ("F32", &[768][..]));
    assert_eq!(tensor.data_offsets, (223_154_176, 223_157_248));
    assert_eq!((file.header.length(), file.header.file_size()), (14_283, 548_105_171));
    assert_eq!(file.header.metadata().unwrap()["format"], "pt");
    assert_eq!(parsed.report().fetch.bytes_read, 8 + 14_283);
}

#[tokio::test]
async fn bloom_as_the_documentation_shows_it() {
    let hub = support::fixtures_hub();
    let parsed = support::parse(&hub, "bigscience/bloom").await.unwrap();
    let SafetensorsParseFromRepo::Sharded(shards) = &parsed else { panic!("bloom is sharded") };
    assert_eq!(shards.index.total_size(), Some(352_494_542_848));
    let (path, header) = shards.headers.iter().nth(11).unwrap();
    assert_eq!(path.as_str(), "model_00012-of-00072.safetensors");
    let tensor = header.tensors().get("h.10.input_layernorm.weight").unwrap();
    assert_eq!((tensor.dtype.as_str(), &*tensor.shape), ("BF16", &[14_336][..]));
    assert_eq!(tensor.data_offsets, (3_288_649_728, 3_288_678_400));
}

#[tokio::test]
async fn scalars_are_reported_next_to_the_count() {
    let hub = support::fixtures_hub();
    let parsed = support::parse(&hub, "EleutherAI/gpt-neox-20b").await.unwrap();
    let totals = parsed.parameter_count().totals();
    assert_eq!((totals.scalars, totals.bytes), (44, 41_293_685_880));
}
