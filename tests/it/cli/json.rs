//! JSON output.

use serde_json::Value;

use super::run;
use crate::support;

/// Keeps only the first entry of each map of names, so that a snapshot is short.
fn abridged(mut value: Value) -> Value {
    let shorten = |map: &mut Value| {
        let map = map.as_object_mut().unwrap();
        let first = map.keys().find(|key| *key != "__metadata__").unwrap().clone();
        map.retain(|key, _| *key == first || key == "__metadata__");
    };
    if value["sharded"] == true {
        shorten(&mut value["index"]["weight_map"]);
        shorten(&mut value["headers"]);
        value["headers"].as_object_mut().unwrap().values_mut().for_each(shorten);
        value["filepaths"].as_array_mut().unwrap().truncate(2);
    } else {
        shorten(&mut value["header"]);
    }
    value["fetch"]["seconds"] = Value::from("some");
    value
}

#[test]
fn json_has_the_shape_of_huggingface_js() {
    let hub = support::fixtures_hub();
    for repo in ["bigscience/bloom", "gpt2"] {
        let stdout = run(&hub, &[repo, "--json"]).data();
        let json: Value = serde_json::from_str(&stdout).unwrap();
        insta::assert_json_snapshot!(repo.replace('/', "_"), abridged(json));
    }
}

#[test]
fn json_has_one_line_per_repository() {
    let hub = support::fixtures_hub();
    let stdout = run(&hub, &["gpt2", "roberta-base", "--json", "--summary"]).data();
    let documents: Vec<Value> =
        stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(documents.len(), 2);
    assert_eq!(documents[0]["parameterTotal"], 137_022_720);
    assert_eq!(documents[1]["parameterCount"]["I64"], 514);
    assert!(documents.iter().all(|json| json.get("header").is_none()));
}
