//! Sets of weights on the page: other sets besides the counted one, and sets to choose from.

use std::time::Duration;

use futures::future::join_all;
use hf_meta::{Client, DiskCache};
use hf_meta_server::Service;
use serde_json::json;

use super::{config, get, router};
use crate::hub::{Fault, LocalHub, Repo};
use crate::layouts::{pipeline, repo};
use crate::support;

/// Returns the targets of the links in the table of sets.
fn links(page: &str) -> Vec<String> {
    let list = page.split("<table class=\"sets\">").nth(1).unwrap_or_default();
    let list = list.split("</table>").next().unwrap_or_default();
    let links = list.split("href=\"").skip(1).filter_map(|rest| rest.split('"').next());
    links.map(|link| link.replace("&amp;", "&")).collect()
}

/// Returns the number of requests for lists of files.
fn listings(hub: &LocalHub) -> usize {
    hub.log().iter().filter(|request| request.path.contains("/tree/")).count()
}

#[tokio::test]
async fn the_page_of_a_pipeline_links_to_its_components() {
    let hub = LocalHub::start([pipeline("org/pipeline")]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    // The page reads the headers a second time for the modules, from the cache.
    let client =
        Client::builder().endpoint(hub.endpoint()).header_cache(DiskCache::new(folder.path()));
    let router = Service::new(client.build().unwrap(), config()).router();
    let page = get(&router, "/?repo=org/pipeline&style=social").await.body;
    assert!(page.contains("Other weight sets"), "{page}");
    let here = "?repo=org%2Fpipeline&path=";
    assert_eq!(
        links(&page),
        [
            format!("{here}flux-dev.safetensors&style=social"),
            format!("{here}text_encoder%2Fmodel.fp16.safetensors&style=social"),
            format!("{here}text_encoder%2Fmodel.safetensors&style=social"),
            format!("{here}vae%2Fdiffusion_pytorch_model.safetensors&style=social"),
        ]
    );
    assert_eq!(listings(&hub), 1, "only the list that was needed to find the weights");
    for link in links(&page) {
        let component = get(&router, &format!("/{link}")).await.body;
        assert!(component.contains("Contents of the files"), "{link}");
        assert!(
            component.contains("href=\"?repo=org%2Fpipeline&amp;style=social\""),
            "the link to the whole repository"
        );
    }
    assert_eq!(listings(&hub), 1, "the page of a component needs no list");
}

#[tokio::test]
async fn other_sets_are_listed_once_per_commit_and_never_for_a_badge() {
    let sets = ["model.safetensors", "2_Dense/model.safetensors"];
    let hub = LocalHub::start([repo("org/model", &sets)]).unwrap();
    let mut config = config();
    config.ttl = Duration::ZERO;
    let router = router(&hub, config);
    get(&router, "/badge/org/model.svg").await;
    get(&router, "/api/models/org/model").await;
    get(&router, "/?repo=org/model&path=model.safetensors").await;
    assert_eq!(listings(&hub), 0);
    let pages = join_all((0..20).map(|_| get(&router, "/?repo=org/model"))).await;
    for page in pages {
        let link = "?repo=org%2Fmodel&path=2_Dense%2Fmodel.safetensors";
        assert_eq!(links(&page.body), [link]);
    }
    get(&router, &format!("/?repo=org/model&revision={}", "1".repeat(40))).await;
    assert_eq!(listings(&hub), 1);
    let badge = get(&router, "/badge/org/model.svg").await;
    assert_eq!(badge.title(), "params: 1", "the other set is not counted");
}

#[tokio::test]
async fn a_repo_with_one_set_has_no_list() {
    let hub = LocalHub::start([repo("org/model", &["model.safetensors", "config.json"])]).unwrap();
    let page = get(&router(&hub, config()), "/?repo=org/model").await.body;
    assert!(
        page.contains("Contents of the files") && !page.contains("Other weight sets"),
        "{page}"
    );
}

#[tokio::test]
async fn several_sets_are_offered_as_links() {
    let sets = ["a & b.safetensors", "c\"'><script>.safetensors", "c/50%25+#.safetensors"];
    let several = sets
        .iter()
        .fold(Repo::new("org/several"), |repo, path| repo.file(path, support::weights(&["x"])));
    let hub = LocalHub::start([several]).unwrap();
    let router = router(&hub, config());
    let page = get(&router, "/?repo=org/several").await.body;
    assert!(page.contains("Choose a weight set"), "{page}");
    assert!(page.contains("contains 3 weight sets"), "{page}");
    assert!(!page.contains("<script>") && !page.contains("Embed the badge"), "{page}");
    let links = links(&page);
    assert_eq!(links.len(), 3, "{links:?}");
    for link in links {
        let set = get(&router, &format!("/{link}")).await.body;
        assert!(set.contains("Contents of the files"), "{link}: {set}");
    }
    let api = get(&router, "/api/models/org/several").await.json();
    let paths = api["sets"].as_array().unwrap().iter().map(|set| &set["path"]);
    assert_eq!(paths.collect::<Vec<_>>(), sets.map(|path| json!(path)).iter().collect::<Vec<_>>());
}

#[tokio::test]
async fn a_failing_or_slow_listing_does_not_block_the_page() {
    let sets = ["model.safetensors", "vae/model.safetensors"];
    let hub = LocalHub::start([repo("org/model", &sets)]).unwrap();
    let page = async |fault: fn() -> Fault| {
        hub.inject(move |request, _| request.path.contains("/tree/").then(fault));
        let mut config = config();
        config.lookup_timeout = Duration::from_millis(300);
        let router = router(&hub, config);
        loop {
            let page = get(&router, "/?repo=org/model").await.body;
            // On a busy machine the headers, too, can take longer than the wait.
            if !page.contains("The headers are being read") {
                return page;
            }
        }
    };
    let failed = page(|| Fault::Status(500, Vec::new())).await;
    assert!(failed.contains("Contents of the files"), "{failed}");
    assert!(failed.contains("currently unavailable") && !failed.contains("refresh"));
    let slow = page(|| Fault::Stall).await;
    assert!(slow.contains("are being listed") && slow.contains("http-equiv=\"refresh\""), "{slow}");
}
