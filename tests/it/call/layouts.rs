//! Weights in other places than in most repositories.

mod listings;

use hf_meta::{Client, Error, SafetensorsParseFromRepo, Source};

use crate::hub::{File, LocalHub, Repo};
use crate::support::{self, weights};

const COMMIT: &str = "1111111111111111111111111111111111111111";

/// Returns a repository with weights at these paths. Each file has one tensor, named as its path.
pub(crate) fn repo(id: &str, paths: &[&str]) -> Repo {
    let add = |repo: Repo, path: &&str| {
        let is_weights = path.ends_with(".safetensors");
        repo.file(path, if is_weights { weights(&[path]) } else { File::from_bytes("{}") })
    };
    paths.iter().fold(Repo::new(id).commit(COMMIT), add)
}

pub(crate) fn pipeline(id: &str) -> Repo {
    let shards =
        ["diffusion_pytorch_model-00001-of-00002", "diffusion_pytorch_model-00002-of-00002"]
            .map(|name| format!("{name}.safetensors"));
    let index = support::index(&[("x", &*shards[0]), ("y", &*shards[1])]);
    repo(
        id,
        &["model_index.json", "vae/diffusion_pytorch_model.safetensors", "flux-dev.safetensors"],
    )
    .file("text_encoder/model.safetensors", weights(&["a", "b"]))
    .file("text_encoder/model.fp16.safetensors", weights(&["a"]))
    .file("transformer/diffusion_pytorch_model.safetensors.index.json", index)
    .file(&format!("transformer/{}", shards[0]), weights(&["x"]))
    .file(&format!("transformer/{}", shards[1]), weights(&["y"]))
}

/// Returns the paths that were read, and those of the other sets.
fn paths(parsed: &SafetensorsParseFromRepo) -> (Vec<String>, Option<Vec<String>>) {
    let read = parsed.report().filepaths.iter().map(ToString::to_string).collect();
    let sets = parsed.report().other_sets.as_ref();
    (read, sets.map(|sets| sets.iter().map(|set| set.path.to_string()).collect()))
}

/// Returns path, query and status of each request to the Hub, without those to the CDN.
fn asked(hub: &LocalHub) -> Vec<String> {
    let log = hub.log();
    let to_hub = log.iter().filter(|entry| entry.host == crate::hub::Host::Hub);
    let line = |entry: &crate::hub::LoggedRequest| {
        let query = entry.query.as_ref().map_or_else(String::new, |query| format!("?{query}"));
        format!("{}{query} {}", entry.path, entry.status)
    };
    to_hub.map(line).collect()
}

#[tokio::test]
async fn a_pipeline_is_its_main_component_and_the_others_are_listed() {
    let hub = LocalHub::start([pipeline("org/pipeline")]).unwrap();
    let parsed = support::parse(&hub, "org/pipeline").await.unwrap();
    let (read, others) = paths(&parsed);
    assert_eq!(
        read,
        [
            "transformer/diffusion_pytorch_model.safetensors.index.json",
            "transformer/diffusion_pytorch_model-00001-of-00002.safetensors",
            "transformer/diffusion_pytorch_model-00002-of-00002.safetensors"
        ]
    );
    assert_eq!(
        others.unwrap(),
        [
            "flux-dev.safetensors",
            "text_encoder/model.fp16.safetensors",
            "text_encoder/model.safetensors",
            "vae/diffusion_pytorch_model.safetensors",
        ]
    );
    assert_eq!(parsed.parameter_count().total(), 2, "of the transformer alone");
    assert_eq!(parsed.report().commit.as_ref().unwrap().as_str(), COMMIT);
    assert_eq!(parsed.report().findings, []);

    let transformer = "/org/pipeline/resolve";
    let mut asked = asked(&hub);
    asked[..2].sort();
    assert_eq!(
        asked[..4],
        [
            format!("{transformer}/main/model.safetensors 404"),
            format!("{transformer}/main/model.safetensors.index.json 404"),
            format!("/api/models/org/pipeline/tree/{COMMIT}?recursive=true 200"),
            format!(
                "{transformer}/{COMMIT}/transformer/diffusion_pytorch_model.safetensors.index.json 307"
            ),
        ],
        "one more request than elsewhere, at the commit of the first answer"
    );
    assert_eq!(asked.len(), 4 + 1 + 2 * 2);
    assert_eq!(parsed.report().fetch.requests, hub.log().len() as u64);
}

#[tokio::test]
async fn a_component_is_selected_by_its_folder_or_its_path() {
    let hub = LocalHub::start([pipeline("org/pipeline")]).unwrap();
    let model = support::client(&hub).model("org/pipeline");
    let cases = [
        ("vae", "vae/diffusion_pytorch_model.safetensors"),
        ("text_encoder", "text_encoder/model.safetensors"),
        ("text_encoder/model.fp16.safetensors", "text_encoder/model.fp16.safetensors"),
        ("flux-dev.safetensors", "flux-dev.safetensors"),
    ];
    for (path, read) in cases {
        let parsed = model.clone().path(path).parse_safetensors_metadata().await.unwrap();
        assert_eq!(paths(&parsed).0, [read], "{path}");
    }
}

/// The result of each layout: repo, paths in it, files that are read.
const FOUND: [(&str, &[&str], &[&str]); 8] = [
    (
        "org/adapter",
        &[
            "adapter_config.json",
            "adapter_model.safetensors",
            "checkpoint-5/adapter_model.safetensors",
        ],
        &["adapter_model.safetensors"],
    ),
    (
        "org/consolidated",
        &["params.json", "consolidated.safetensors"],
        &["consolidated.safetensors"],
    ),
    (
        "org/no-index",
        &["model-00002-of-00002.safetensors", "model-00001-of-00002.safetensors"],
        &["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"],
    ),
    ("org/variant", &["model.fp16.safetensors", "pytorch_model.bin"], &["model.fp16.safetensors"]),
    (
        "org/unet",
        &["unet/diffusion_pytorch_model.safetensors"],
        &["unet/diffusion_pytorch_model.safetensors"],
    ),
    (
        "sentence-transformers/static",
        &["modules.json", "0_StaticEmbedding/model.safetensors", "1_Dense/model.safetensors"],
        &["0_StaticEmbedding/model.safetensors"],
    ),
    ("datasets/org/embeddings", &["data/embeddings.safetensors"], &["data/embeddings.safetensors"]),
    ("spaces/org/app", &["app.py", "weights/small.safetensors"], &["weights/small.safetensors"]),
];

#[tokio::test]
async fn the_model_of_a_repository_is_found_by_its_layout() {
    let repos = FOUND.iter().map(|(id, paths, _)| repo(id, paths));
    let hub = LocalHub::start(repos).unwrap();
    for (id, _, expected) in FOUND {
        let parsed = support::parse(&hub, id).await.unwrap();
        assert_eq!(paths(&parsed).0, expected, "{id}");
        assert_eq!(parsed.parameter_count().total(), expected.len() as u64, "{id}");
        assert_eq!(parsed.report().sharded, expected.len() > 1, "{id}");
        assert_eq!(parsed.report().commit.as_ref().unwrap().as_str(), COMMIT, "{id}");
        assert_eq!(parsed.report().findings, [], "{id}");
    }
}

#[tokio::test]
async fn the_model_of_a_local_folder_is_found_by_its_layout() {
    for (id, files, expected) in FOUND {
        let folder = tempfile::tempdir().unwrap();
        for path in files {
            let file = folder.path().join(path);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            let header =
                format!(r#"{{"{path}":{{"dtype":"BOOL","shape":[0],"data_offsets":[0,0]}}}}"#);
            std::fs::write(file, support::file_start(&header)).unwrap();
        }
        let source = Source::Local(folder.path().to_owned());
        let parsed =
            Client::new().unwrap().source(source).parse_safetensors_metadata().await.unwrap();
        assert_eq!(paths(&parsed).0, expected, "{id}");
        assert_eq!(parsed.parameter_count().totals().tensors, expected.len() as u64, "{id}");
    }
}

/// A folder that links to itself would be searched without end, and hidden folders are not the user's.
#[cfg(unix)]
#[tokio::test]
async fn hidden_folders_and_links_to_folders_are_not_searched() {
    let folder = tempfile::tempdir().unwrap();
    let weights = support::file_start(r#"{"x":{"dtype":"BOOL","shape":[0],"data_offsets":[0,0]}}"#);
    for path in ["real/any.safetensors", ".cache/hidden.safetensors", ".hidden.safetensors"] {
        let file = folder.path().join(path);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, &weights).unwrap();
    }
    std::os::unix::fs::symlink(folder.path(), folder.path().join("real/loop")).unwrap();
    std::os::unix::fs::symlink("nowhere", folder.path().join("gone.safetensors")).unwrap();
    let source = Source::Local(folder.path().to_owned());
    let model = Client::new().unwrap().source(source);
    let parsed = model.parse_safetensors_metadata().await.unwrap();
    assert_eq!(paths(&parsed), (vec!["real/any.safetensors".to_owned()], Some(vec![])));
}

#[tokio::test]
async fn a_missing_index_is_built_from_headers() {
    let shards = ["x/m-00001-of-00002.safetensors", "x/m-00002-of-00002.safetensors"];
    let hub =
        LocalHub::start([repo("org/m", &shards).file("x/other.safetensors", weights(&["o"]))]);
    let hub = hub.unwrap();
    let model = support::client(&hub).model("org/m").path("x/m-*-of-00002.safetensors");
    let parsed = model.parse_safetensors_metadata().await.unwrap();
    assert_eq!(paths(&parsed), (shards.map(str::to_owned).to_vec(), None));
    let json = serde_json::to_value(&parsed).unwrap();
    assert_eq!(json["index"]["weight_map"][shards[1]], "m-00002-of-00002.safetensors");
    assert_eq!(json["sharded"], true);
    assert_eq!(parsed.report().commit.as_ref().unwrap().as_str(), COMMIT);
    let (_, header) = parsed.files().next().unwrap();
    assert_eq!(header.tensors().iter().next().unwrap().0, shards[0]);
    let one = support::client(&hub).model("org/m").path(shards[0]);
    assert!(
        !one.parse_safetensors_metadata().await.unwrap().report().sharded,
        "one file is one file"
    );
}

#[tokio::test]
async fn missing_shards_and_duplicate_tensors_are_errors() {
    let hub = LocalHub::start([
        repo(
            "org/missing",
            &["model-00001-of-00003.safetensors", "model-00003-of-00003.safetensors"],
        ),
        Repo::new("org/twice")
            .file("model-00001-of-00002.safetensors", weights(&["x"]))
            .file("model-00002-of-00002.safetensors", weights(&["x"])),
    ])
    .unwrap();
    let missing = support::parse(&hub, "org/missing").await.unwrap_err();
    assert_eq!(
        missing.to_string(),
        "`org/missing/model-*-of-00003.safetensors` is incomplete: found 2 of 3 shards and no index; \
         the first missing one is `model-00002-of-00003.safetensors`"
    );
    let twice = support::parse(&hub, "org/twice").await.unwrap_err();
    assert!(
        support::error_chain(&twice).contains("tensor `x` is in two shards, `model-00001-of-00002"),
        "{twice:?}"
    );
    assert!(missing.is_malformed() && twice.is_malformed());
}

#[tokio::test]
async fn several_sets_are_not_summed() {
    let sets = ["a.safetensors", "b.safetensors", "c/model.safetensors"];
    let hub = LocalHub::start([repo("org/several", &sets)]).unwrap();
    let error = support::parse(&hub, "org/several").await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "`org/several` contains 3 weight sets, and it is unclear which one is the main model"
    );
    let Error::SeveralSets { sets: found, .. } = &error else { panic!("{error:?}") };
    assert_eq!(found.iter().map(|set| set.path.as_str()).collect::<Vec<_>>(), sets);
    assert!(found.iter().all(|set| set.files == 1 && set.bytes > 0));
    for set in found {
        let model = support::client(&hub).model("org/several").path(set.path.as_str());
        model.parse_safetensors_metadata().await.unwrap();
    }
}
