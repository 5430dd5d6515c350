//! The list of models: properties, order, pages and access.

use serde_json::{Value, json};

use super::{Received, get, get_from, hub};
use crate::generated::GeneratedModels;
use crate::hub::{File, LazyRepos as _, LocalHub, Repo};

fn json(response: &Received) -> Value {
    serde_json::from_slice(&response.body).unwrap()
}

/// Returns the names on all pages, and the number of pages.
async fn names(hub: &LocalHub, query: &str) -> (Vec<String>, usize) {
    let mut url = format!("{}/api/models?{query}", hub.endpoint());
    let (mut names, mut pages) = (Vec::new(), 0);
    loop {
        let response = get(&url, &[]).await;
        assert_eq!(response.status, 200, "{url}");
        let page = json(&response);
        names.extend(
            page.as_array().unwrap().iter().map(|entry| entry["id"].as_str().unwrap().to_owned()),
        );
        pages += 1;
        let Some(link) = response.header("link") else { return (names, pages) };
        link.strip_prefix('<')
            .unwrap()
            .strip_suffix(">; rel=\"next\"")
            .unwrap()
            .clone_into(&mut url);
    }
}

fn model(name: &str, created: u64, modified: u64) -> Repo {
    Repo::new(name)
        .file("model.safetensors", File::from_bytes("x"))
        .listed("createdAt", format!("2024-01-{created:02}T00:00:00.000Z"))
        .listed("lastModified", format!("2025-01-{modified:02}T00:00:00.000Z"))
}

#[tokio::test]
async fn entries_have_the_requested_properties() {
    let repo = super::model()
        .gated()
        .hub_reported_count("BF16", 6)
        .listed("downloads", 12)
        .listed("pipeline_tag", "text-generation")
        .listed("tags", vec!["license:mit"]);
    let config = r#"{"model_type":"m","architectures":["M"]}"#;
    let hub = LocalHub::start([repo.file("config.json", File::from_bytes(config))]).unwrap();
    let expand =
        ["sha", "siblings", "safetensors", "gated", "lastModified", "config", "tags", "downloads"];
    for key in ["expand[]", "expand%5B%5D", "expand"] {
        let query: Vec<_> = expand.iter().map(|name| format!("{key}={name}")).collect();
        let response = get_from(&hub, &format!("/api/models?{}", query.join("&")), &[]).await;
        let mut list = json(&response);
        list[0].as_object_mut().unwrap().remove("_id").unwrap();
        let expected = json!([{
            "id": "org/model",
            "sha": super::COMMIT,
            "siblings": [{ "rfilename": "config.json" }, { "rfilename": "model.safetensors" }],
            "safetensors": { "parameters": { "BF16": 6 }, "total": 6 },
            "gated": "auto",
            "lastModified": "2025-01-01T00:00:00.000Z",
            "config": { "model_type": "m", "architectures": ["M"] },
            "tags": ["license:mit", "safetensors"],
            "downloads": 12,
        }]);
        assert_eq!(list, expected);
    }
}

#[tokio::test]
async fn models_are_sorted_and_filtered() {
    let hub = LocalHub::builder()
        .repos([model("b/1", 3, 1), model("a/1", 1, 3), model("a/2", 2, 2)])
        .repo(Repo::new("a/0").file("model.bin", File::from_bytes("x")))
        .repo(model("a/hidden", 1, 1).private())
        .repo(Repo::new("datasets/a/set"))
        .token("member")
        .tree_page_size(2)
        .start()
        .unwrap();
    for (query, expected) in [
        ("filter=safetensors", &["b/1", "a/2", "a/1"][..]),
        ("filter=safetensors&sort=createdAt&direction=-1", &["b/1", "a/2", "a/1"]),
        ("filter=safetensors&sort=lastModified&direction=-1&limit=1", &["a/1", "a/2", "b/1"]),
        ("author=a", &["a/2", "a/1", "a/0"]),
        ("author=none", &[]),
    ] {
        assert_eq!(names(&hub, query).await.0, expected, "{query}");
    }
    let member = [("authorization", "Bearer member")];
    let list = json(&get_from(&hub, "/api/models?author=a&filter=safetensors", &member).await);
    let listed = list.as_array().unwrap().iter().any(|model| model["id"] == "a/hidden");
    assert!(listed, "{list}");
}

#[tokio::test]
async fn a_wrong_token_is_rejected() {
    let wrong = get_from(&hub(), "/api/models", &[("authorization", "Bearer wrong")]).await;
    assert_eq!(wrong.status, 401);
}

#[tokio::test]
async fn computed_models_are_listed_once_and_the_last_changed_ones_first() {
    let models = GeneratedModels::new(500, 1);
    let hub = LocalHub::builder().lazy_repos(models.clone()).tree_page_size(100).start().unwrap();
    let mut expected: Vec<_> = (0..500).map(|index| models.truth(index).repo).collect();
    expected.reverse();
    assert_eq!(names(&hub, "sort=createdAt").await, (expected.clone(), 5));
    assert_eq!(names(&hub, "sort=createdAt&limit=50").await, (expected, 10));

    let before = models.clone();
    let old: Vec<_> = (0..500).map(|index| before.truth(index).commit).collect();
    models.push();
    let changed: Vec<_> = (0..500).filter(|index| models.last_push(*index) == 1).collect();
    assert!((1..20).contains(&changed.len()), "{}", changed.len());
    let (listed, _) = names(&hub, "sort=lastModified&direction=-1").await;
    for index in changed {
        let (index_of, truth) = (models.index_of(&models.truth(index).repo), models.truth(index));
        assert_eq!(index_of, Some(index));
        assert!(listed[..20].contains(&truth.repo), "{}", truth.repo);
        let old = &old[usize::try_from(index).unwrap()];
        assert_ne!(*old, truth.commit);
        for commit in [old, &truth.commit] {
            let path = format!("/api/models/{}/revision/{commit}", truth.repo);
            assert_eq!(get_from(&hub, &path, &[]).await.status, 200, "{path}");
        }
    }
}
