//! Results with and without a list of files.

use hf_meta::{Client, Error, ErrorKind};

use super::{COMMIT, asked, paths, repo};
use crate::hub::{Fault, LocalHub};
use crate::support::{self, weights};

#[tokio::test]
async fn a_repository_without_safetensors_reports_its_other_weights() {
    let hub = LocalHub::start([
        repo(
            "org/other",
            &["pytorch_model.bin", "a.gguf", "b.gguf", "training_args.bin", "config.json"],
        ),
        repo("org/nothing", &["README.md"]),
    ])
    .unwrap();
    let said = |repo: &str| {
        format!(
            "no supported weights in `{repo}: neither `model.safetensors` nor \
             `model.safetensors.index.json` exists"
        )
    };
    let error = support::parse(&hub, "org/other").await.unwrap_err().to_string();
    assert_eq!(error, said("org/other`, only PyTorch (.bin), 1 file; GGUF (.gguf), 2 files"));
    let error = support::parse(&hub, "org/nothing").await.unwrap_err().to_string();
    assert_eq!(error, said("org/nothing`"));
    let config = hub.log().iter().filter(|entry| entry.path.contains("config.json")).count();
    assert_eq!(config, 0, "that would count as a download");
}

/// The requests of the usual search are tested elsewhere; this tests the additional ones.
#[tokio::test]
async fn other_sets_are_listed_on_request() {
    let hub = LocalHub::start([support::sharded("org/model")
        .file("2_Dense/model.safetensors", weights(&["d"]))
        .file("model.fp16.safetensors", weights(&["x"]))])
    .unwrap();
    let model = support::client(&hub).model("org/model");
    let plain = model.parse_safetensors_metadata().await.unwrap();
    assert_eq!(plain.report().other_sets, None);
    assert!(serde_json::to_value(&plain).unwrap().get("otherSets").is_none());
    let before = hub.log().len();
    let listed = model.other_sets(true).parse_safetensors_metadata().await.unwrap();
    assert_eq!(hub.log().len() - before, before + 1);
    let expected = ["2_Dense/model.safetensors", "model.fp16.safetensors"].map(str::to_owned);
    assert_eq!(paths(&listed).1.unwrap(), expected);
    let json = serde_json::to_value(&listed).unwrap();
    assert_eq!(json["otherSets"][0]["path"], expected[0]);
    assert_eq!(json["otherSets"][0]["files"], 1);
}

/// One request suffices; a rejected token costs a second.
#[tokio::test]
async fn sets_are_listed_without_reading_any() {
    let sets = ["a.safetensors", "b/model.safetensors"];
    let hub = LocalHub::builder().repo(repo("org/several", &sets)).token("hf_good");
    let hub = hub.start().unwrap();
    for (token, requests) in [("", 1), ("hf_good", 1), ("hf_expired", 2)] {
        hub.clear_log();
        let client = Client::builder().endpoint(hub.endpoint()).token(token).build().unwrap();
        let model = client.model("org/several");
        let listed = model.weight_sets().await.unwrap().unwrap();
        let listed: Vec<_> = listed.iter().map(|set| set.path.as_str()).collect();
        assert_eq!((listed, hub.log().len()), (sets.to_vec(), requests), "{token}");
        assert_eq!(model.hub_reported_count().await.unwrap(), None);
        let below = model.path("b").weight_sets().await.unwrap().unwrap();
        assert_eq!(below.len(), 1);
    }
    let none = support::client(&hub).model("org/none").weight_sets().await;
    assert_eq!(none.unwrap(), None);
}

#[tokio::test]
async fn listings_in_pages_are_read_completely() {
    let many: Vec<_> =
        (0..25).map(|n| format!("checkpoint-{n:02}/adapter_model.safetensors")).collect();
    let paths: Vec<_> = many.iter().map(String::as_str).chain(["z/any.safetensors"]).collect();
    for is_mirror in [false, true] {
        let hub =
            LocalHub::builder().repo(repo("org/many", &paths)).tree_page_size(10).base_path("/hf");
        let hub = if is_mirror { hub.mirror() } else { hub }.start().unwrap();
        let error = support::parse(&hub, "org/many").await.unwrap_err();
        let Error::SeveralSets { sets, .. } = error else { panic!("{error:?}") };
        assert_eq!(sets.len(), 26, "mirror: {is_mirror}");
        let pages = asked(&hub).iter().filter(|line| line.contains("/tree/")).count();
        assert_eq!(pages, 6, "51 folders and files, ten a page; none was asked of another host");
    }
}

#[tokio::test]
async fn endless_and_invalid_listings_are_errors() {
    let hub =
        LocalHub::builder().repo(repo("org/any", &["a.safetensors"])).tree_page_size(1).start();
    let hub = hub.unwrap();
    let link = |to: &str| Fault::Header("link", format!("<{to}>; rel=\"next\""));
    let cases = [
        (link("https://huggingface.co/x?recursive=true"), "the listing does not end"),
        (link("/x?cursor=1"), "the listing does not end"),
        (link("file:///etc/passwd"), "the link to the next page is invalid"),
        (link(""), "the link to the next page is invalid"),
        (Fault::WholeFile { is_chunked: true }, ""),
        (Fault::ResetInBody { after: 3 }, "failed to fetch"),
        (Fault::Status(404, vec![]), "no supported weights in"),
        (Fault::Status(501, vec![]), "no supported weights in"),
        (Fault::Status(503, vec![]), "failed to fetch `list of files of org/any`"),
    ];
    let client = Client::builder()
        .endpoint(hub.endpoint())
        .retry_policy(hf_meta::RetryPolicy::default().max_attempts(1));
    let client = client.build().unwrap();
    for (fault, expected) in cases {
        let spoiled = fault.clone();
        hub.inject(move |request, _| request.path.contains("/tree/").then(|| spoiled.clone()));
        let parsed = client.model("org/any").parse_safetensors_metadata().await;
        let said = parsed.map_or_else(|error| support::error_chain(&error), |_| String::new());
        assert!(
            said.contains(expected) && said.is_empty() == expected.is_empty(),
            "{fault:?}: {said}"
        );
    }
}

/// Neither the listing nor the file names the commit, but the file was requested at the commit that the responses
/// about the usual names have.
#[tokio::test]
async fn a_commit_that_only_a_404_response_names_pins_the_weights() {
    let hub = LocalHub::start([repo("org/any", &["any.safetensors"])]).unwrap();
    hub.inject(|request, _| {
        let is_usual_name = request.path.contains("/model.safetensors");
        (!is_usual_name).then(|| Fault::Header("x-repo-commit", "unknown".to_owned()))
    });
    let parsed = support::parse(&hub, "org/any").await.unwrap();
    assert_eq!(parsed.report().commit.as_ref().map(hf_meta::CommitSha::as_str), Some(COMMIT));
    assert_eq!(parsed.report().findings, []);
}

#[tokio::test]
async fn a_gated_repository_is_listed_but_not_read() {
    let hub = LocalHub::start([repo("org/gated", &["any.safetensors"]).gated()]).unwrap();
    let error = support::parse(&hub, "org/gated").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Gated, "{error:?}");
    assert!(asked(&hub).iter().all(|line| !line.contains("/tree/")));
}
