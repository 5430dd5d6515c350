//! Counts of quantized models over HTTP: the requests for the configuration, and its effect.

use std::fmt::Write as _;

use hf_meta::{Client, ErrorKind, RetryPolicy, SafetensorsParseFromRepo};
use hf_meta_count::count::{Buffer, Configs, MixtureOfExperts};
use hf_meta_count::results::Finding;

use crate::hub::{Fault, File, LocalHub, Repo};
use crate::models::{self, Model};
use crate::support;

const GPTQ: &str = r#"{"quantization_config":{"quant_method":"gptq","bits":4}}"#;

/// A file of tensors by name, dtype, shape and bytes per element.
pub(crate) fn tensors(tensors: &[(&str, &str, &[u64], u64)]) -> File {
    let (mut header, mut end) = (String::from("{"), 0);
    for (name, dtype, shape, width) in tensors {
        let begin = end;
        end += shape.iter().product::<u64>() * width;
        let comma = if header.len() > 1 { "," } else { "" };
        write!(
            header,
            r#"{comma}"{name}":{{"dtype":"{dtype}","shape":{shape:?},"data_offsets":[{begin},{end}]}}"#
        )
        .unwrap();
    }
    support::file_with_header(&(header + "}"), end)
}

/// Weights packed eight to an element, with a scale and a bias. Nothing but the configuration shows the width.
fn packed() -> File {
    tensors(&[
        ("m.qweight", "I32", &[8, 4], 4),
        ("m.scales", "F16", &[1, 4], 2),
        ("m.bias", "F16", &[3], 2),
    ])
}

fn hub(config: Option<&'static str>) -> LocalHub {
    let repo = Repo::new("org/model").file("model.safetensors", packed());
    LocalHub::start([match config {
        Some(config) => repo.file("config.json", File::from_bytes(config)),
        None => repo,
    }])
    .unwrap()
}

/// Returns the paths of all requests for a configuration, without those that followed a redirect.
fn config_requests(hub: &LocalHub) -> Vec<String> {
    let paths = hub.log().into_iter().map(|entry| entry.path);
    paths.filter(|path| path.contains("/resolve/") && path.ends_with("/config.json")).collect()
}

fn counts(parsed: &SafetensorsParseFromRepo) -> Vec<(String, u64, u64)> {
    let rows = parsed.parameter_count().rows();
    rows.map(|(dtype, row)| (dtype.to_string(), row.parameters, row.elements)).collect()
}

const UNPACKED: [(&str, u64, u64); 2] = [("F16", 3, 7), ("I32", 256, 32)];
const STORED: [(&str, u64, u64); 2] = [("F16", 3, 7), ("I32", 32, 32)];

fn rows(rows: &[(&str, u64, u64)]) -> Vec<(String, u64, u64)> {
    rows.iter().map(|&(dtype, n, elements)| (dtype.to_owned(), n, elements)).collect()
}

/// The fixtures that are quantized.
const QUANTIZED: [&str; 3] = [
    "openai/gpt-oss-20b",
    "unsloth/Meta-Llama-3.1-8B-Instruct-bnb-4bit",
    "RedHatAI/Llama-3.3-70B-Instruct-quantized.w4a16",
];

#[tokio::test]
async fn only_quantized_fixtures_need_a_configuration() {
    let hub = support::fixtures_hub();
    let fixtures = models::fixtures();
    for Model { repo, .. } in &fixtures {
        hub.clear_log();
        let parsed = support::parse(&hub, repo).await.unwrap();
        let is_quantized = QUANTIZED.contains(repo);
        assert_eq!(config_requests(&hub).len(), usize::from(is_quantized), "{repo}");
        let mut rows = parsed.parameter_count().rows();
        let is_as_stored = rows.all(|(_, row)| row.parameters == row.elements);
        assert_eq!(is_as_stored, !is_quantized, "{repo}");
    }
    assert!(QUANTIZED.iter().all(|repo| fixtures.iter().any(|model| model.repo == *repo)));
}

#[tokio::test]
async fn the_configuration_is_requested_once_and_at_the_commit() {
    let hub = hub(Some(GPTQ));
    let parsed = support::parse(&hub, "org/model").await.unwrap();
    let commit = parsed.report().commit.as_ref().unwrap();
    assert_eq!(config_requests(&hub), [format!("/org/model/resolve/{commit}/config.json")]);
    assert_eq!(counts(&parsed), rows(&UNPACKED));
    assert_eq!(parsed.parameter_count().total(), 259);
    let counting = &parsed.report().breakdown;
    assert_eq!(counting.rules.to_string(), "hf-meta 1");
    assert_eq!(counting.method.as_deref(), Some("gptq"));
    assert_eq!(parsed.report().findings, []);
    assert_eq!(parsed.report().fetch.requests, hub.log().len() as u64);
}

#[tokio::test]
async fn without_a_configuration_weights_are_counted_as_stored() {
    let hub = hub(None);
    let parsed = support::parse(&hub, "org/model").await.unwrap();
    assert_eq!(config_requests(&hub).len(), 1);
    assert_eq!(counts(&parsed), rows(&STORED));
    assert!(!parsed.report().is_exact());
    let findings = &parsed.report().findings;
    assert!(matches!(findings[..], [Finding::UnresolvedModule { .. }]), "{findings:?}");
}

#[tokio::test]
async fn an_invalid_configuration_is_a_finding() {
    for config in ["<html>", "[]", r#"{"quantization_config":"#, ""] {
        let hub = hub(Some(config));
        let parsed = support::parse(&hub, "org/model").await.unwrap();
        assert_eq!(counts(&parsed), rows(&STORED), "{config}");
        let findings = &parsed.report().findings;
        let is_invalid = |finding: &Finding| matches!(finding, Finding::InvalidConfig { .. });
        assert!(findings.iter().any(is_invalid), "{config}: {findings:?}");
    }
}

#[tokio::test]
async fn an_oversized_config_is_a_finding() {
    let limit = usize::try_from(Configs::DEFAULT_LIMIT).unwrap();
    for (length, expected, findings) in [(limit, UNPACKED, 0), (limit + 1, STORED, 2)] {
        let config = File::from_bytes(GPTQ.to_owned() + &" ".repeat(length - GPTQ.len()));
        let repo = Repo::new("org/model").file("model.safetensors", packed());
        let hub = LocalHub::start([repo.file("config.json", config)]).unwrap();
        let parsed = support::parse(&hub, "org/model").await.unwrap();
        assert_eq!(counts(&parsed), rows(&expected), "{length}");
        assert_eq!(parsed.report().findings.len(), findings, "{length}");
    }
}

/// A count must not depend on the state of the network.
#[tokio::test]
async fn a_transient_config_failure_is_an_error() {
    let hub = hub(Some(GPTQ));
    hub.inject(|request, _| {
        request.path.ends_with("config.json").then(|| Fault::Status(503, vec![]))
    });
    let retry = RetryPolicy::default().max_attempts(1);
    let client = Client::builder().endpoint(hub.endpoint()).retry_policy(retry).build().unwrap();
    let error = client.model("org/model").parse_safetensors_metadata().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
}

#[tokio::test]
async fn the_config_next_to_the_weights_takes_precedence() {
    let eight = r#"{"quantization_config":{"quant_method":"gptq","bits":8}}"#;
    for (next_to_weights, expected) in [(Some(eight), 128), (None, 256)] {
        let repo = Repo::new("org/model")
            .file("gptq/4bit/model.safetensors", packed())
            .file("config.json", File::from_bytes(GPTQ));
        let repo = match next_to_weights {
            Some(config) => repo.file("gptq/4bit/config.json", File::from_bytes(config)),
            None => repo,
        };
        let hub = LocalHub::start([repo]).unwrap();
        let model = support::client(&hub).model("org/model").path("gptq/4bit");
        let parsed = model.parse_safetensors_metadata().await.unwrap();
        assert_eq!(parsed.parameter_count().total(), 3 + expected);
        assert_eq!(model.count().await.unwrap().parameter_count.total(), 3 + expected);
    }
}

/// `AutoGPTQ` described the quantization in a separate file.
#[tokio::test]
async fn another_config_is_read_only_if_the_shapes_are_ambiguous() {
    let other = File::from_bytes(r#"{"bits":4,"group_size":64}"#);
    let solved = tensors(&[
        ("m.qweight", "I32", &[8, 16], 4),
        ("m.qzeros", "I32", &[1, 2], 4),
        ("m.scales", "F16", &[1, 16], 2),
    ]);
    for (weights, total, requests) in [(packed(), 259, 1), (solved, 1024, 0)] {
        let repo = Repo::new("org/model").file("model.safetensors", weights);
        let repo = repo.file("config.json", File::from_bytes("{}"));
        let hub = LocalHub::start([repo.file("quantize_config.json", other.clone())]).unwrap();
        let parsed = support::parse(&hub, "org/model").await.unwrap();
        assert_eq!(
            (parsed.parameter_count().total(), &parsed.report().findings[..]),
            (total, &[][..])
        );
        let paths = hub.log().into_iter().filter(|entry| {
            entry.path.contains("/resolve/") && entry.path.ends_with("quantize_config.json")
        });
        assert_eq!(paths.count(), requests);
    }
}

#[tokio::test]
async fn another_unreadable_config_is_a_finding_with_its_name() {
    let hub = hub(Some("{}"));
    hub.inject(|request, _| {
        request.path.ends_with("quantize_config.json").then(|| Fault::Status(503, vec![]))
    });
    let retry = RetryPolicy::default().max_attempts(1);
    let client = Client::builder().endpoint(hub.endpoint()).retry_policy(retry).build().unwrap();
    let report = client.model("org/model").verify().await.unwrap();
    let is_unreadable = |finding: &Finding| matches!(finding, Finding::Unreadable { file, .. } if file == "quantize_config.json");
    assert!(report.findings().iter().any(is_unreadable), "{:?}", report.findings());
}

/// Mistral's own format has the number of experts per token in `params.json`, which is read only if no other file has it.
#[tokio::test]
async fn params_json_gives_the_experts_per_token() {
    let names = ["w1", "w2", "w3"].iter().flat_map(|part| {
        (0..4)
            .map(move |expert| format!("layers.0.block_sparse_moe.experts.{expert}.{part}.weight"))
    });
    let names: Vec<_> = names.collect();
    let experts: Vec<_> =
        names.iter().map(|name| (name.as_str(), "BF16", &[8, 8][..], 2)).collect();
    let params = File::from_bytes(r#"{"dim":8,"moe":{"num_experts":4,"num_experts_per_tok":2}}"#);
    let complete = File::from_bytes(r#"{"num_local_experts":4,"num_experts_per_tok":1}"#);
    for (config, active, requests) in [(None, 2, 1), (Some(complete), 1, 0)] {
        let repo = Repo::new("org/model").file("model.safetensors", tensors(&experts));
        let repo = repo.file("params.json", params.clone());
        let repo = match config {
            Some(config) => repo.file("config.json", config),
            None => repo,
        };
        let hub = LocalHub::start([repo]).unwrap();
        let parsed = support::parse(&hub, "org/model").await.unwrap();
        let moe = parsed.report().breakdown.moe.unwrap();
        assert_eq!((moe.experts_per_token, moe.active()), (active, active * 3 * 64));
        let read = hub.log().into_iter().filter(|entry| {
            entry.path.contains("/resolve/") && entry.path.ends_with("params.json")
        });
        assert_eq!(read.count(), requests);
    }
}

/// The scales that show that MLX packed a module may be in another shard than its weight.
#[tokio::test]
async fn parts_of_a_module_may_be_in_different_shards() {
    let index = support::index(&[
        ("m.weight", "a.safetensors"),
        ("m.scales", "b.safetensors"),
        ("m.biases", "b.safetensors"),
        ("n.scales", "b.safetensors"),
    ]);
    let repo = Repo::new("org/model")
        .file("model.safetensors.index.json", index)
        .file("a.safetensors", tensors(&[("m.weight", "U32", &[3, 16], 4)]))
        .file(
            "b.safetensors",
            tensors(&[
                ("m.scales", "BF16", &[3, 2], 2),
                ("m.biases", "BF16", &[3, 2], 2),
                ("n.scales", "BF16", &[7], 2),
            ]),
        )
        .file("config.json", File::from_bytes(r#"{"quantization":{"bits":4,"group_size":64}}"#));
    let hub = LocalHub::start([repo]).unwrap();
    let parsed = support::parse(&hub, "org/model").await.unwrap();
    assert_eq!(counts(&parsed), rows(&[("BF16", 7, 19), ("U32", 384, 48)]));
}

/// A layer that drafts tokens is not active, even if its shard would not need the configuration by itself.
#[tokio::test]
async fn draft_layers_are_recognized_in_every_shard() {
    let experts = tensors(&[
        ("layers.0.mlp.experts.0.weight", "BF16", &[8], 2),
        ("layers.0.mlp.experts.1.weight", "BF16", &[8], 2),
        ("embed.weight", "BF16", &[8], 2),
    ]);
    let index = support::index(&[
        ("layers.0.mlp.experts.0.weight", "a.safetensors"),
        ("layers.0.mlp.experts.1.weight", "a.safetensors"),
        ("embed.weight", "a.safetensors"),
        ("mtp.norm.weight", "b.safetensors"),
        ("layers.1.norm.weight", "b.safetensors"),
    ]);
    let drafts =
        tensors(&[("mtp.norm.weight", "BF16", &[8], 2), ("layers.1.norm.weight", "BF16", &[8], 2)]);
    let config = r#"{"num_experts":2,"num_experts_per_tok":1,"num_nextn_predict_layers":1,"num_hidden_layers":1}"#;
    let repo = Repo::new("org/moe")
        .file("model.safetensors.index.json", index)
        .file("a.safetensors", experts)
        .file("b.safetensors", drafts)
        .file("config.json", File::from_bytes(config));
    let hub = LocalHub::start([repo]).unwrap();
    let model = support::client(&hub).model("org/moe");
    let parsed = model.parse_safetensors_metadata().await.unwrap();
    let counted = model.count().await.unwrap();
    for report in [parsed.report(), &counted] {
        let moe = report.breakdown.moe.unwrap();
        assert_eq!((moe.active(), moe.draft, moe.total()), (16, 16, 40));
    }
}

#[tokio::test]
async fn a_mixture_of_experts_has_active_parameters() {
    let experts = tensors(&[
        ("h.0.mlp.experts.gate_up_proj", "BF16", &[4, 10, 3], 2),
        ("h.0.mlp.shared_experts.weight", "BF16", &[7], 2),
        ("h.0.mlp.router.weight", "BF16", &[4, 2], 2),
    ]);
    let config = r#"{"text_config":{"num_experts":4,"num_experts_per_tok":2}}"#;
    for (config, active) in [(config, Some(75)), (r#"{"num_experts":4}"#, None)] {
        let repo = Repo::new("org/moe").file("model.safetensors", experts.clone());
        let hub = LocalHub::start([repo.file("config.json", File::from_bytes(config))]).unwrap();
        let parsed = support::parse(&hub, "org/moe").await.unwrap();
        let moe = parsed.report().breakdown.moe;
        assert_eq!(moe.as_ref().map(MixtureOfExperts::active), active);
        assert_eq!(parsed.parameter_count().total(), 135);
    }
}

/// The masks of gpt2 are part of the documented count.
#[tokio::test]
async fn buffers_are_grouped_separately() {
    let hub = support::fixtures_hub();
    let cases = [
        ("gpt2", Buffer::AttentionMask, 12, 12_582_912),
        ("EleutherAI/gpt-neox-20b", Buffer::AttentionMask, 88, 184_549_376),
        ("roberta-base", Buffer::Ids, 1, 514),
    ];
    for (repo, buffer, tensors, elements) in cases {
        let parsed = support::parse(&hub, repo).await.unwrap();
        let groups = &parsed.report().breakdown.groups;
        let buffers = groups.iter().filter(|group| group.buffer == Some(buffer));
        let (mut found_tensors, mut found_elements) = (0, 0);
        for group in buffers {
            found_tensors += group.count.tensors;
            found_elements += group.count.elements;
        }
        assert_eq!((found_tensors, found_elements), (tensors, elements), "{repo}");
    }
}

#[tokio::test]
async fn a_count_above_64_bits_is_an_error_with_the_tensor_name() {
    let header = format!(
        r#"{{"a":{{"dtype":"F4","shape":[{0}],"data_offsets":[0,{1}]}},"b":{{"dtype":"F4","shape":[{0}],"data_offsets":[{1},{2}]}}}}"#,
        u64::MAX / 4 * 2,
        u64::MAX / 4,
        u64::MAX / 4 * 2,
    );
    let repo = Repo::new("org/huge")
        .file("model.safetensors", support::file_with_header(&header, u64::MAX / 4 * 2));
    let hub = LocalHub::start([repo.file("config.json", File::from_bytes(GPTQ))]).unwrap();
    let error = support::parse(&hub, "org/huge").await.unwrap_err();
    assert_eq!(
        support::error_chain(&error),
        "`org/huge/model.safetensors` is not a valid safetensors file: \
         the size of tensor `a` overflows 64 bits"
    );
}
