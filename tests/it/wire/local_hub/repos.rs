//! Repositories by name, revision and folder, and the request log.

use std::fs;
use std::path::Path;

use reqwest::{Client, Method};

use super::{COMMIT, WEIGHTS, get, get_from, hub};
use crate::folder::load_folder;
use crate::hub::{File, Host, LocalHub, Repo};

async fn weights_at(hub: &LocalHub, revision: &str) -> Option<String> {
    let path = format!("/org/model/resolve/{revision}/model.safetensors");
    let first = get_from(hub, &path, &[]).await;
    let weights = get(first.header("location")?, &[]).await.body;
    Some(format!("{} {}", first.header("x-repo-commit")?, String::from_utf8_lossy(&weights)))
}

#[tokio::test]
async fn a_revision_resolves_to_a_commit_and_a_branch_can_move() {
    const NEXT: &str = "2222222222222222222222222222222222222222";
    let repo = Repo::new("org/model")
        .commit(COMMIT)
        .file("model.safetensors", File::from_bytes("old"))
        .commit(NEXT)
        .file("model.safetensors", File::from_bytes("new"))
        .revision("refs/pr/1", COMMIT);
    let hub = LocalHub::start([repo]).unwrap();
    let (old, new) = (Some(format!("{COMMIT} old")), Some(format!("{NEXT} new")));
    assert_eq!(weights_at(&hub, "main").await, new);
    assert_eq!(weights_at(&hub, COMMIT).await, old);
    assert_eq!(weights_at(&hub, "refs%2Fpr%2F1").await, old);
    assert_eq!(weights_at(&hub, "refs%2Fpr%2F2").await, None);
    hub.move_branch("org/model", "main", COMMIT);
    assert_eq!(weights_at(&hub, "main").await, old);
}

#[tokio::test]
async fn the_api_returns_the_commit_and_the_files() {
    let hub = hub();
    for revision in ["", "/revision/main", "/revision/HEAD"] {
        let response = get_from(&hub, &format!("/api/models/org/model{revision}"), &[]).await;
        let info: serde_json::Value = serde_json::from_slice(&response.body).unwrap();
        assert_eq!((&info["id"], &info["sha"]), (&"org/model".into(), &COMMIT.into()));
        assert_eq!(info["siblings"][1]["rfilename"], "model.safetensors");
    }
}

#[tokio::test]
async fn names_can_be_short_or_name_datasets() {
    let hub = LocalHub::builder()
        .repo(Repo::new("gpt2").file("model.safetensors", File::from_bytes("x")))
        .repo(Repo::new("datasets/org/set").file("ä b/c.bin", File::from_bytes("x")))
        .start()
        .unwrap();
    for path in
        ["/gpt2/resolve/main/model.safetensors", "/datasets/org/set/resolve/main/%C3%A4%20b/c.bin"]
    {
        let first = get_from(&hub, path, &[]).await;
        assert_eq!(get(first.location(), &[]).await.body, "x", "{path}");
    }
}

#[tokio::test]
async fn a_hub_can_be_served_under_a_path() {
    let repo = Repo::new("datasets/org/set").file("c.txt", File::from_bytes("x"));
    let hub = LocalHub::builder().base_path("/hf").repo(repo).start().unwrap();
    let origin = hub.endpoint().strip_suffix("/hf").unwrap();
    let first = get_from(&hub, "/datasets/org/set/resolve/main/c.txt", &[]).await;
    assert!(first.location().starts_with("/hf/api/resolve-cache/datasets/org/set/"));
    assert_eq!(get(&format!("{origin}{}", first.location()), &[]).await.body, "x");
}

#[tokio::test]
async fn the_log_contains_every_request_in_order() {
    let hub = hub();
    let path = format!("{WEIGHTS}?download=true");
    let first = get_from(&hub, &path, &[("range", "bytes=0-7"), ("user-agent", "test/1")]).await;
    get(first.location(), &[("range", "bytes=0-7"), ("accept-encoding", "identity")]).await;

    let [to_hub, to_cdn] = hub.log().try_into().unwrap();
    assert_eq!((to_hub.host, to_hub.method, to_hub.status), (Host::Hub, Method::GET, 302));
    assert_eq!((&*to_hub.path, to_hub.query.as_deref()), (WEIGHTS, Some("download=true")));
    assert_eq!(to_hub.headers["user-agent"], "test/1");
    assert_eq!((to_cdn.host, to_cdn.status), (Host::Cdn, 206));
    assert_eq!(to_cdn.range.as_deref(), Some("bytes=0-7"));
    assert_eq!(to_cdn.headers["accept-encoding"], "identity");
    hub.clear_log();
    assert!(hub.log().is_empty());
}

fn write(folder: &Path, path: &str, content: &[u8]) {
    let path = folder.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

/// Reads a file and follows redirects.
async fn read(hub: &LocalHub, path: &str, range: &str) -> Vec<u8> {
    let client = Client::builder().no_proxy().build().unwrap();
    let request = client.get(format!("{}{path}", hub.endpoint())).header("range", range);
    request.send().await.unwrap().bytes().await.unwrap().into()
}

#[tokio::test]
async fn a_downloaded_model_folder_is_served_from_disk() {
    let folder = tempfile::tempdir().unwrap();
    let weights: Vec<u8> = (0..200_000_u32).flat_map(u32::to_le_bytes).collect();
    write(folder.path(), "org/model/model.safetensors", &weights);
    write(folder.path(), "org/model/onnx/config.json", b"{}");
    write(folder.path(), "org/notes.txt", b"no repo");
    let hub = LocalHub::start(load_folder(folder.path()).unwrap()).unwrap();
    assert_eq!(read(&hub, WEIGHTS, "bytes=0-").await, weights);
    assert_eq!(read(&hub, WEIGHTS, "bytes=70001-799998").await, weights[70_001..799_999]);
    assert_eq!(read(&hub, "/org/model/resolve/main/onnx/config.json", "bytes=0-").await, b"{}");
}

#[tokio::test]
async fn a_cut_file_on_disk_has_the_size_in_its_hub_json() {
    let folder = tempfile::tempdir().unwrap();
    let about = format!(r#"{{"commit":"{COMMIT}","sizes":{{"model.safetensors":9}}}}"#);
    write(folder.path(), "cut/hub.json", about.as_bytes());
    write(folder.path(), "cut/model.safetensors", b"head");
    let [repo] = load_folder(folder.path()).unwrap().try_into().ok().unwrap();
    let hub = LocalHub::start([repo]).unwrap();
    let path = format!("/cut/resolve/{COMMIT}/model.safetensors");
    assert_eq!(read(&hub, &path, "bytes=3-").await, b"d\0\0\0\0\0");
    assert_eq!(read(&hub, "/cut/resolve/main/hub.json", "bytes=0-").await, b"Entry not found");
}

#[test]
fn a_folder_with_weights_is_one_repo() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "mine/model.safetensors", b"");
    let repos = load_folder(&folder.path().join("mine")).unwrap();
    assert_eq!(repos.iter().map(Repo::id).collect::<Vec<_>>(), ["mine"]);
}

#[tokio::test]
async fn files_are_listed_in_pages() {
    let file = || File::from_bytes("x");
    let repo = Repo::new("org/model")
        .file("a.txt", file())
        .file("b/c/d.safetensors", File::padded("x", 1000))
        .file("b/e.txt", file());
    let hub = LocalHub::builder().repo(repo).tree_page_size(2).start().unwrap();
    let page = async |path: &str| {
        let response = get(path, &[]).await;
        let entries: Vec<serde_json::Value> = serde_json::from_slice(&response.body).unwrap();
        let next = response.header("link").map(|link| {
            let (url, relation) = link.split_once("; ").unwrap();
            assert_eq!(relation, "rel=\"next\"");
            url.trim_matches(['<', '>']).to_owned()
        });
        (entries, next)
    };
    let paths = |entries: &[serde_json::Value]| {
        entries.iter().map(|entry| entry["path"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let tree = format!("{}/api/models/org/model/tree/main", hub.endpoint());
    let (first, next) = page(&format!("{tree}?recursive=true")).await;
    assert_eq!(paths(&first), ["a.txt", "b"]);
    assert_eq!((&first[0]["type"], &first[1]["type"]), (&"file".into(), &"directory".into()));
    let (second, next) = page(&next.unwrap()).await;
    assert_eq!(paths(&second), ["b/c", "b/c/d.safetensors"]);
    assert_eq!((&second[1]["size"], &second[1]["lfs"]["size"]), (&1000.into(), &1000.into()));
    let (third, next) = page(&next.unwrap()).await;
    assert_eq!((paths(&third), next), (vec!["b/e.txt".to_owned()], None));
    assert_eq!(
        paths(&page(&format!("{tree}/b?recursive=1")).await.0),
        ["b/c", "b/c/d.safetensors"]
    );
    let missing = get(&format!("{tree}/none"), &[]).await;
    assert_eq!((missing.status, missing.header("x-error-code")), (404, Some("EntryNotFound")));
}

#[tokio::test]
async fn a_mirror_links_to_the_real_hub() {
    let repo = Repo::new("a").file("x", File::from_bytes("x")).file("y", File::from_bytes("x"));
    let hub = LocalHub::builder().repo(repo).tree_page_size(1).mirror().start().unwrap();
    let response = get_from(&hub, "/api/models/a/tree/main?recursive=true", &[]).await;
    let link = response.header("link").unwrap();
    assert!(
        link.starts_with("<https://huggingface.co/api/models/a/tree/main?recursive=true&cursor=")
    );
}
