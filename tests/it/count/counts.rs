//! Counting without keeping headers gives the same result with the same requests.

use hf_meta::{CountReport, Error};
use serde_json::{Value, json};

use crate::hub::{File, LocalHub, Repo};
use crate::{models, support};

const INDEX: &str = "model.safetensors.index.json";

/// Returns a result as JSON without its fetch statistics, or its error.
fn figures(result: Result<CountReport, Error>) -> Result<Value, String> {
    let counts = result.map_err(|error| support::error_chain(&error))?;
    let mut figures = serde_json::to_value(counts).unwrap();
    figures["fetch"] = json!(null);
    Ok(figures)
}

/// Compares both calls and returns the number of requests of each.
async fn compare(hub: &LocalHub, repo: &str) -> [usize; 2] {
    let model = support::client(hub).model(repo);
    let before = hub.log().len();
    let counted = model.count().await;
    let between = hub.log().len();
    let parsed = model.parse_safetensors_metadata().await;
    assert_eq!(figures(counted), figures(parsed.map(|parsed| parsed.report().clone())), "{repo}");
    [between - before, hub.log().len() - between]
}

#[tokio::test]
async fn all_paths_count_every_fixture_alike() {
    let hub = support::fixtures_hub();
    for model in models::fixtures() {
        let [counted, parsed] = compare(&hub, model.repo).await;
        assert_eq!(counted, parsed, "{}", model.repo);
    }
}

/// Compares both calls for shards `a` with tensor `x` and `b` with `y`, and an index that disagrees.
async fn disagreeing(index: File) -> [usize; 2] {
    let repo = support::sharded("org/model").file(INDEX, index);
    compare(&LocalHub::start([repo]).unwrap(), "org/model").await
}

#[tokio::test]
async fn shards_that_disagree_with_their_index_are_read_once() {
    let (a, b) = ("a.safetensors", "b.safetensors");
    // A call that fails drops the requests that are in flight, so their number varies.
    for (index, is_valid) in [
        (support::index(&[("x", a), ("y", b)]), true),
        (support::index(&[("y", a), ("x", b)]), true),
        (support::index(&[("x", a), ("y", b), ("z", b)]), false),
        (support::index(&[("x", a), ("x", b)]), false),
        (
            File::from_bytes(
                r#"{"metadata":{"total_size":1,"total_parameters":7},
            "weight_map":{"x":"a.safetensors","y":"b.safetensors"}}"#,
            ),
            true,
        ),
    ] {
        let [counted, parsed] = disagreeing(index).await;
        assert!(!is_valid || counted == parsed, "{counted}, {parsed}");
    }
}

/// A repository with a packed tensor of eight weights in one shard, and a plain tensor in another.
fn quantized(config: &'static str) -> Repo {
    let packed = r#"{"m.weight":{"dtype":"U32","shape":[2],"data_offsets":[0,8]},"m.scales":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}}"#;
    Repo::new("org/model")
        .file(
            INDEX,
            support::index(&[
                ("m.weight", "a.safetensors"),
                ("m.scales", "a.safetensors"),
                ("y", "b.safetensors"),
            ]),
        )
        .file("a.safetensors", support::file_with_header(packed, 16))
        .file("b.safetensors", support::weights(&["y"]))
        .file("config.json", File::from_bytes(config))
}

#[tokio::test]
async fn quantized_shards_are_counted_alike() {
    for config in [
        r#"{"quantization_config":{"quant_method":"gptq","bits":4}}"#,
        r#"{"quantization":{"bits":4,"group_size":64}}"#,
        r#"{"num_experts":2,"num_experts_per_tok":1,"num_nextn_predict_layers":1,"num_hidden_layers":3}"#,
        "{",
    ] {
        let hub = LocalHub::start([quantized(config)]).unwrap();
        let [counted, parsed] = compare(&hub, "org/model").await;
        assert_eq!(counted, parsed, "{config}");
    }
}

#[tokio::test]
async fn invalid_files_give_the_same_error() {
    for header in ["{", r#"{"w":{"dtype":"U8","shape":[2],"data_offsets":[0,1]}}"#] {
        let repo =
            Repo::new("org/model").file("model.safetensors", support::file_with_header(header, 1));
        compare(&LocalHub::start([repo]).unwrap(), "org/model").await;
    }
    let short = r#"{"w":{"dtype":"BOOL","shape":[2],"data_offsets":[0,2]}}"#;
    let repo =
        Repo::new("org/model").file("model.safetensors", support::file_with_header(short, 1));
    compare(&LocalHub::start([repo]).unwrap(), "org/model").await;
}
