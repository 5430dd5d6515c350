//! Several names of one commit.

use hf_meta_server::Service;

use super::{cached_client, client, config, get};
use crate::hub::LocalHub;
use crate::support;

/// Whichever name is read first, a result has the name that the request asked for.
#[tokio::test]
async fn each_name_of_a_commit_has_its_own_source_and_findings() {
    let repo = support::sharded("org/new").renamed_from("org/former");
    let commit = client(&LocalHub::start([repo.clone()]).unwrap()).model("org/new").count().await;
    let commit = commit.unwrap().commit.unwrap();
    // The requested path, the name in the result, and whether the result tells the new name.
    let names = [
        ("org/new".to_owned(), "org/new".to_owned(), false),
        ("org/former".to_owned(), "org/former".to_owned(), true),
        ("org/new?revision=main".to_owned(), "org/new@main".to_owned(), false),
        (format!("org/former?revision={commit}"), format!("org/former@{commit}"), true),
        (format!("org/new?revision={commit}"), format!("org/new@{commit}"), false),
        ("ORG/new".to_owned(), "ORG/new".to_owned(), true),
    ];
    for first in 0..2 * names.len() {
        let hub = LocalHub::start([repo.clone()]).unwrap();
        let (first, is_cached) = (first / 2, first % 2 == 1);
        let client = if is_cached { cached_client(&hub) } else { client(&hub) };
        let router = Service::new(client, config()).router();
        for (path, source, is_renamed) in names.iter().cycle().skip(first).take(names.len()) {
            let result = get(&router, &format!("/api/models/{path}")).await.json();
            assert_eq!(
                (&result["source"], &result["parameterTotal"]),
                (&(**source).into(), &2.into())
            );
            let is_renaming = |finding: &&serde_json::Value| finding["kind"] == "renamed";
            let findings = result["findings"].as_array().unwrap();
            let renamed: Vec<_> =
                findings.iter().filter(is_renaming).map(|found| &found["repo"]).collect();
            assert_eq!(
                renamed,
                vec!["org/new"; usize::from(*is_renamed)],
                "{path} after {}",
                names[first].0
            );
        }
    }
}
