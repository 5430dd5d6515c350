//! JSON output.

use serde_json::Value;

use super::run;
use crate::call::layouts::repo;
use crate::hub::{Fault, File, LocalHub, Repo};
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

/// Returns the lines of stdout as JSON, and the exit status.
fn documents(hub: &LocalHub, args: &[&str]) -> (Vec<Value>, i32) {
    let ran = run(hub, args);
    (ran.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect(), ran.code)
}

#[test]
fn a_failed_repository_has_an_error_line() {
    let hub = LocalHub::builder()
        .repo(support::sharded("org/good"))
        .repo(support::sharded("org/gated").gated())
        .repo(Repo::new("org/bad").file("model.safetensors", File::from_bytes("x")))
        .start()
        .unwrap();
    let repos = ["org/none", "org/good", "org/gated", "org/bad", "a/b/c"];
    for args in [&["--json"][..], &["--json", "--summary"]] {
        let (lines, code) = documents(&hub, &[&repos, args].concat());
        assert_eq!((lines.len(), code), (5, 3));
        let errors: Vec<_> = lines.iter().map(|line| (&line["source"], &line["error"])).collect();
        let codes = ["repoNotFound", "", "gated", "malformedHeader", "invalidSource"];
        for (((source, error), repo), code) in errors.iter().zip(repos).zip(codes) {
            assert_eq!(**source, repo);
            assert_eq!(error["code"].as_str().unwrap_or_default(), code, "{error}");
        }
        assert_eq!(errors[0].1["status"], 401);
        let message = "`org/bad/model.safetensors` is not a valid safetensors file: the file has only 1 byte;";
        let found = errors[3].1["message"].as_str().unwrap();
        assert!(found.starts_with(message), "{found}");
        assert_eq!(errors[3].1.get("status"), None);
    }
    let (lines, code) = documents(&hub, &["verify", "--json", "org/none", "org/good"]);
    assert_eq!((lines[0]["error"]["code"].as_str(), code), (Some("repoNotFound"), 3));
    assert_eq!(lines[1]["valid"], true);
    let (lines, code) = documents(&hub, &["diff", "--json", "org/good", "org/none"]);
    assert_eq!((lines.len(), lines[0]["error"]["code"].as_str()), (1, Some("repoNotFound")));
    assert_eq!(code, 3);
}

#[test]
fn a_rate_limit_names_the_seconds_to_wait() {
    let hub = LocalHub::start([support::sharded("org/model")]).unwrap();
    let headers = vec![("ratelimit", r#""resolvers";r=0;t=900"#.to_owned())];
    hub.inject(move |_, _| Some(Fault::Status(429, headers.clone())));
    let (lines, code) = documents(&hub, &["org/model", "--json"]);
    let error = &lines[0]["error"];
    assert_eq!((error["code"].as_str(), code), (Some("rateLimited"), 3), "{error}");
    assert!(error["retryAfter"].as_u64() > Some(1), "{error}");
}

#[test]
fn sets_to_choose_from_are_listed_as_other_sets() {
    let sets = ["a.safetensors", "b.safetensors"];
    let hub = LocalHub::start([repo("org/several", &sets)]).unwrap();
    let (lines, code) = documents(&hub, &["org/several", "--sets", "--json"]);
    assert_eq!((lines[0]["error"]["code"].as_str(), code), (Some("severalSets"), 1));
    let listed = lines[0]["otherSets"].as_array().unwrap().iter();
    assert_eq!(listed.map(|set| set["path"].as_str().unwrap()).collect::<Vec<_>>(), sets);
}
