//! Every kind of source of the same weights has the same result.

use std::fs;
use std::path::Path;

use hf_meta::{Client, SafetensorsParseFromRepo, Source};
use tempfile::TempDir;

use crate::hub::{LocalHub, Repo};
use crate::support;

/// Returns counts and headers, without the fields that depend on the source.
fn comparable(parsed: &SafetensorsParseFromRepo) -> serde_json::Value {
    let mut json = serde_json::to_value(parsed).unwrap();
    for key in ["source", "commit", "fetch", "filepaths"] {
        json.as_object_mut().unwrap().remove(key);
    }
    json
}

async fn parse(client: &Client, source: &str) -> SafetensorsParseFromRepo {
    let source = Source::parse(source, client.endpoint()).unwrap();
    client.source(source).parse_safetensors_metadata().await.unwrap()
}

/// Copies a fixture to a folder with files of full size. They are sparse, so they take little space.
fn full_size(repo: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(repo);
    let hub: serde_json::Value =
        serde_json::from_slice(&fs::read(fixtures.join("hub.json")).unwrap()).unwrap();
    for entry in fs::read_dir(fixtures).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        let copy = folder.path().join(name);
        fs::copy(&path, &copy).unwrap();
        if let Some(size) = hub["sizes"][name].as_u64() {
            fs::OpenOptions::new().write(true).open(copy).unwrap().set_len(size).unwrap();
        }
    }
    folder
}

#[tokio::test]
async fn every_spelling_of_a_repository_has_the_same_result() {
    let hub = support::fixtures_hub();
    let client = support::client(&hub);
    let expected = comparable(&client.model("gpt2").parse_safetensors_metadata().await.unwrap());
    let endpoint = hub.endpoint();
    let names = [
        "gpt2".to_owned(),
        "gpt2@main".to_owned(),
        "hf://gpt2".to_owned(),
        "hf://gpt2@main/model.safetensors".to_owned(),
        "https://huggingface.co/gpt2".to_owned(),
        "https://huggingface.co/gpt2/blob/main/model.safetensors".to_owned(),
        format!("{endpoint}/gpt2"),
        format!("{endpoint}/gpt2/tree/main"),
        format!("{endpoint}/gpt2/resolve/main/model.safetensors?download=true"),
    ];
    for name in names {
        assert_eq!(comparable(&parse(&client, &name).await), expected, "{name}");
    }
}

#[tokio::test]
async fn a_path_can_be_a_file_an_index_or_a_folder() {
    let nested = Repo::new("org/nested")
        .file(
            "7b/1/model.safetensors.index.json",
            support::index(&[("x", "a.safetensors"), ("y", "deeper/b.safetensors")]),
        )
        .file("7b/1/a.safetensors", support::weights(&["x"]))
        .file("7b/1/deeper/b.safetensors", support::weights(&["y"]))
        .file("7b/2/model.safetensors", support::weights(&["z"]));
    let hub = LocalHub::start([nested]).unwrap();
    let client = support::client(&hub);
    let sharded =
        ["7b/1/model.safetensors.index.json", "7b/1/a.safetensors", "7b/1/deeper/b.safetensors"];
    let cases = [
        ("7b/1", &sharded[..]),
        ("7b/1/", &sharded),
        ("7b/1/model.safetensors.index.json", &sharded),
        ("7b/1/deeper/b.safetensors", &["7b/1/deeper/b.safetensors"]),
        ("7b/2", &["7b/2/model.safetensors"]),
    ];
    for (path, files) in cases {
        let parsed = client.model("org/nested").path(path).parse_safetensors_metadata().await;
        let found = parsed.unwrap().report().filepaths.clone();
        assert_eq!(found.iter().map(hf_meta::RepoPath::as_str).collect::<Vec<_>>(), files);
    }
}

/// The Hub counts every request for `config.json` as a download of the model. The listings could show a folder with
/// that name, or a weight file with another extension.
#[tokio::test]
async fn a_path_without_weights_is_not_requested() {
    let config = crate::hub::File::from_bytes("{}");
    let hub = LocalHub::start([support::sharded("org/model").file("config.json", config)]).unwrap();
    let model = support::client(&hub).model("org/model").path("config.json");
    let error = model.parse_safetensors_metadata().await.unwrap_err();
    assert!(matches!(error, hf_meta::Error::NoWeights { .. }), "{error:?}");
    assert!(hub.log().iter().all(|entry| !entry.path.ends_with("/resolve/main/config.json")));
    let listing = "/api/models/org/model/tree/";
    assert_eq!(hub.log().iter().filter(|entry| entry.path.starts_with(listing)).count(), 2);
}

#[tokio::test]
async fn revisions_and_paths_are_encoded() {
    let commit = "3".repeat(40);
    let path = "a [b]^|+%25 ü/x.safetensors";
    let repo = Repo::new("datasets/org/set")
        .commit(&commit)
        .file(path, support::weights(&["x"]))
        .revision("refs/pr/1", &commit);
    let hub = LocalHub::start([repo]).unwrap();
    let model = support::client(&hub).model("datasets/org/set").revision("refs/pr/1").path(path);
    let parsed = model.parse_safetensors_metadata().await.unwrap();
    assert_eq!(parsed.report().commit.as_ref().unwrap().as_str(), commit);
    assert_eq!(
        parsed.report().source,
        "hf://datasets/org/set@refs%2Fpr%2F1/a [b]^|+%2525 ü/x.safetensors"
    );
}

#[tokio::test]
async fn a_hub_can_be_served_under_a_path() {
    let hub = LocalHub::builder().repo(support::sharded("org/model")).base_path("/api/hf");
    let hub = hub.start().unwrap();
    assert!(hub.endpoint().ends_with("/api/hf"), "{}", hub.endpoint());
    let parsed = support::parse(&hub, "org/model").await.unwrap();
    assert_eq!(parsed.parameter_count().total(), 2);
}

#[tokio::test]
async fn files_on_any_server_are_read_by_url() {
    let hub = support::fixtures_hub();
    // For a client of another Hub, these URLs are files on a web server.
    let other_client = Client::new().unwrap();
    let base = format!("{}/bigscience/bloom/resolve/main", hub.endpoint());
    let by_index = parse(&other_client, &format!("{base}/model.safetensors.index.json")).await;
    let by_name = support::parse(&hub, "bigscience/bloom").await.unwrap();
    assert_eq!(comparable(&by_index), comparable(&by_name));
    let file = parse(&other_client, &format!("{base}/model_00001-of-00072.safetensors?x=1")).await;
    assert_eq!(file.parameter_count().totals().tensors, 3);
}

#[tokio::test]
async fn a_path_selects_a_part_of_a_local_folder() {
    let folder = tempfile::tempdir().unwrap();
    let file = support::file_start(r#"{"x":{"dtype":"BOOL","shape":[0],"data_offsets":[0,0]}}"#);
    let empty = support::file_start("{}");
    let paths =
        ["a/any.safetensors", "b/m-00001-of-00002.safetensors", "b/m-00002-of-00002.safetensors"];
    for (at, path) in paths.iter().enumerate() {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, if at == 2 { &empty } else { &file }).unwrap();
    }
    let client = Client::new().unwrap();
    let model = client.source(Source::Local(folder.path().to_owned()));
    for (path, files) in [("a", 1), (paths[0], 1), ("b/", 2), ("b/m-*-of-00002.safetensors", 2)] {
        let parsed = model.clone().path(path).parse_safetensors_metadata().await;
        assert_eq!(parsed.unwrap().files().count(), files, "{path}");
    }
    let error = model.path("../x").count().await.unwrap_err();
    assert!(error.is_usage(), "{error}");
}

#[tokio::test]
async fn local_files_have_the_same_result() {
    let hub = support::fixtures_hub();
    for (repo, main) in
        [("gpt2", "model.safetensors"), ("bigscience/bloom", "model.safetensors.index.json")]
    {
        let remote = support::parse(&hub, repo).await.unwrap();
        let folder = full_size(repo);
        let client = Client::new().unwrap();
        for path in [folder.path().to_owned(), folder.path().join(main)] {
            let local = client.source(Source::Local(path)).parse_safetensors_metadata().await;
            let local = local.unwrap();
            assert_eq!(comparable(&local), comparable(&remote), "{repo}");
            let (here, there) = (local.report().fetch, remote.report().fetch);
            assert_eq!((here.requests, here.weight_bytes), (0, there.weight_bytes));
            assert_eq!(here.bytes_read, there.bytes_read);
        }
    }
}
