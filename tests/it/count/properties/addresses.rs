//! Addresses as input and as output.

use hf_meta::Source;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::config;

/// Generates addresses of repositories without reserved characters.
fn repo_address() -> impl Strategy<Value = String> {
    const REPO: &str = "x[A-Za-z0-9_]{0,8}/[A-Za-z0-9_]{1,8}(\\.[a-z0-9]{1,4})?";
    const ANY_PART: &str = "[A-Za-z0-9_ü+@~,-]{1,8}";
    let kind = select(&["", "datasets/", "spaces/"][..]);
    let repo = (kind, REPO).prop_map(|(kind, name)| [kind, &name].concat());
    let revision = prop_oneof![ANY_PART, "refs/(pr|convert)/[a-z0-9]{1,5}"];
    let path = vec(ANY_PART, 0..3).prop_map(|parts| parts.join("/"));
    let written = select(&["hf", "page", "folder", "encoded"][..]);
    (repo, revision, path, written).prop_map(|(repo, revision, path, written)| {
        let encoded = revision.replace('/', "%2F");
        match written {
            "hf" => format!("hf://{repo}@{revision}/{path}"),
            "page" => format!("https://huggingface.co/{repo}"),
            "folder" => format!("https://hf.co/{repo}/tree/{revision}/{path}"),
            _ => format!("hf://models/{repo}@{encoded}/{path}"),
        }
    })
}

proptest! {
    #![proptest_config(config(1_000))]

    #[test]
    fn displayed_repos_parse_back(address in repo_address()) {
        let source: Source = address.parse().unwrap();
        let is_repo = matches!(source, Source::Repo { .. });
        prop_assert!(is_repo, "{address}");
        prop_assert_eq!(source.to_string().parse(), Ok(source));
    }
}
