//! The JSON Schema of the documents of the command.

use std::path::Path;

use boon::{Compiler, SchemaIndex, Schemas};
use serde_json::{Value, json};

use crate::command::run;
use crate::hub::{File, LocalHub, Repo};
use crate::support;

/// The schemas of one kind of document, and of an error in its place.
struct Schema {
    schemas: Schemas,
    document: SchemaIndex,
    failed: SchemaIndex,
}

impl Schema {
    fn new(kind: &str) -> Self {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../src/docs/schema.json");
        let (mut schemas, mut compiler) = (Schemas::new(), Compiler::new());
        let [document, failed] = [kind, "FailedSource"]
            .map(|kind| compiler.compile(&format!("{file}#/$defs/{kind}"), &mut schemas).unwrap());
        Self { schemas, document, failed }
    }

    /// Returns the first violation, if there is one.
    fn violation(&self, document: &Value) -> Result<(), String> {
        let index = if document.get("error").is_some() { self.failed } else { self.document };
        self.schemas.validate(document, index).map_err(|error| format!("{error:#}"))
    }

    /// Runs the command, and checks its lines.
    fn check(&self, hub: &LocalHub, args: &[&str]) -> usize {
        let output = run(hub, args).stdout;
        for line in output.lines() {
            let document: Value = serde_json::from_str(line).unwrap();
            assert_eq!(self.violation(&document), Ok(()), "{args:?}: {line:.200}");
        }
        output.lines().count()
    }
}

/// Runs the command, and checks its lines.
fn check(hub: &LocalHub, kind: &str, args: &[&str]) -> usize {
    Schema::new(kind).check(hub, args)
}

#[test]
fn the_documents_of_all_fixtures_are_valid() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures");
    let fixtures = crate::folder::load_folder(folder.as_ref()).unwrap();
    let names: Vec<_> = fixtures.iter().map(|repo| repo.id().to_owned()).collect();
    let hub = LocalHub::start(fixtures).unwrap();
    let mut repos: Vec<_> = names.iter().map(String::as_str).collect();
    repos.extend(["org/none", "a/b/c"]);
    let all = |args: &[&'static str]| [args, &repos].concat();
    for args in [&["--json"][..], &["--json", "--sets", "--memory"]] {
        assert_eq!(check(&hub, "Weights", &all(args)), repos.len());
    }
    let summary = all(&["--json", "--summary", "--sets", "--fit", "24GB"]);
    assert_eq!(check(&hub, "CountReport", &summary), repos.len());
    assert_eq!(check(&hub, "VerifyReport", &all(&["verify", "--json", "--all"])), repos.len());
    let diff = Schema::new("Diff");
    for other in &repos[1..] {
        diff.check(&hub, &["diff", "--json", repos[0], other]);
    }
}

/// Returns the checkpoints of a folder of fixtures that describe tensors.
fn described(folder: &str) -> Vec<Repo> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(folder);
    let paths = path.read_dir().unwrap().map(|entry| entry.unwrap().path());
    let repos = paths.map(|path| {
        let fixture: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        let shards = fixture["shards"].as_array().into_iter().flatten();
        let lists = shards.chain([&fixture["tensors"]]).filter_map(Value::as_array);
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let tensors = lists.flatten().map(|tensor| {
            let sides = tensor["shape"].as_array().unwrap().iter();
            let shape: Vec<_> = sides.map(|side| side.as_u64().unwrap()).collect();
            (text(&tensor["name"]), text(&tensor["dtype"]), shape)
        });
        let tensors: Vec<_> = tensors.collect();
        let entries = tensors.iter().map(|(name, dtype, shape)| (&**name, &**dtype, &**shape));
        let weights = File::safetensors(entries);
        let name = path.file_stem().unwrap().to_str().unwrap();
        let repo = Repo::new(&format!("{folder}/{name}")).file("model.safetensors", weights);
        repo.file("config.json", File::from_bytes(fixture["config"].to_string()))
    });
    repos.collect()
}

#[test]
fn the_documents_of_described_checkpoints_are_valid() {
    let fixtures: Vec<_> =
        ["quantized", "moe", "adapters"].into_iter().flat_map(described).collect();
    let names: Vec<_> = fixtures.iter().map(|repo| repo.id().to_owned()).collect();
    let repos: Vec<_> = names.iter().map(String::as_str).collect();
    assert!(repos.len() > 400, "{}", repos.len());
    let hub = LocalHub::start(fixtures).unwrap();
    let all = |args: &[&'static str]| [args, &repos].concat();
    assert_eq!(check(&hub, "CountReport", &all(&["--json", "--summary", "--memory"])), repos.len());
    assert_eq!(check(&hub, "VerifyReport", &all(&["verify", "--json"])), repos.len());
}

/// Findings and errors of files that no fixture has.
#[test]
fn documents_with_findings_are_valid() {
    let header = r#"{"x":{"dtype":"Q9","shape":[2],"data_offsets":[0,4]}}"#;
    let index =
        r#"{"metadata":{"total_size":9},"weight_map":{"x":"a.safetensors","y":"b.safetensors"}}"#;
    let repo = Repo::new("org/odd").file("model.safetensors.index.json", File::from_bytes(index));
    let repo = repo.file("a.safetensors", support::file_with_header(header, 4));
    let hub = LocalHub::start([repo, support::sharded("org/good")]).unwrap();
    assert_eq!(check(&hub, "VerifyReport", &["verify", "--json", "org/odd", "org/good"]), 2);
    assert_eq!(check(&hub, "Diff", &["diff", "--json", "org/good", "org/good"]), 1);
    assert_eq!(check(&hub, "Diff", &["diff", "--json", "--values", "org/good", "org/good"]), 1);
    assert_eq!(check(&hub, "VerifyReport", &["verify", "--json", "--values", "org/good"]), 1);
    let plan = ["get", "org/good", "*", "--plan-only", "--json"];
    assert_eq!(check(&hub, "PlanDocument", &plan), 1);
    let wrong = json!({ "source": "x", "error": { "code": 1 } });
    assert!(Schema::new("Diff").violation(&wrong).is_err());
}
