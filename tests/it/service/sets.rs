//! Sets of weights to choose from on the page.

use serde_json::json;

use super::{config, get, router};
use crate::call::layouts::pipeline;
use crate::hub::{LocalHub, Repo};
use crate::support;

/// Returns the targets of the links in the list of sets.
fn links(page: &str) -> Vec<String> {
    let list = page.split("<ul class=\"sets\">").nth(1).unwrap_or_default();
    let list = list.split("</ul>").next().unwrap_or_default();
    let links = list.split("href=\"").skip(1).filter_map(|rest| rest.split('"').next());
    links.map(|link| link.replace("&amp;", "&")).collect()
}

#[tokio::test]
async fn several_sets_are_offered_as_links() {
    let sets = ["a & b.safetensors", "c\"'><script>.safetensors", "c/50%25+#.safetensors"];
    let several = sets
        .iter()
        .fold(Repo::new("org/several"), |repo, path| repo.file(path, support::weights(&["x"])));
    let hub = LocalHub::start([several]).unwrap();
    let router = router(&hub, config());
    let page = get(&router, "/?repo=org/several&style=social").await.body;
    assert!(page.contains("contains 3 weight sets") && page.contains("Choose one"), "{page}");
    assert!(!page.contains("<script>") && !page.contains("Embed the badge"), "{page}");
    let links = links(&page);
    assert_eq!(links.len(), 3, "{links:?}");
    for link in links {
        assert!(link.ends_with("&style=social"), "{link}");
        let set = get(&router, &format!("/{link}")).await.body;
        assert!(set.contains("1 parameter<") && set.contains("Embed the badge"), "{link}: {set}");
    }
    let api = get(&router, "/api/models/org/several").await.json();
    let paths = api["otherSets"].as_array().unwrap().iter().map(|set| &set["path"]);
    assert_eq!(paths.collect::<Vec<_>>(), sets.map(|path| json!(path)).iter().collect::<Vec<_>>());
}

/// The page makes badges of the main set. A second lookup per view would double the requests to the Hub.
#[tokio::test]
async fn the_page_costs_no_more_requests_than_a_badge() {
    let hub = LocalHub::start([pipeline("org/pipeline")]).unwrap();
    let mut logs = Vec::new();
    for path in ["/badge/org/pipeline.svg", "/?repo=org/pipeline"] {
        let seen = get(&router(&hub, config()), path).await;
        assert!(!seen.body.contains("not found") && !seen.body.contains("class=\"notice\""));
        logs.push(hub.log().len());
        hub.clear_log();
    }
    assert!(logs[0] > 0);
    assert_eq!(logs[0], logs[1]);
}
