//! The plan `hub`: one request for all headers.

use hf_meta::{Client, DiskCache, Error, Plan};

use crate::count::quantization::tensors;
use crate::hub::{Fault, File, LocalHub, LoggedRequest, Repo};
use crate::support;

const BLOOM: &str = "bigscience/bloom";

fn is_headers(request: &LoggedRequest) -> bool {
    request.path.contains("/safetensors-metadata/")
}

#[tokio::test]
async fn bloom_is_read_with_one_request() {
    let hub = support::fixtures_hub();
    let model = support::client(&hub).model(BLOOM);
    let expected = model.parse_safetensors_metadata().await.unwrap();
    hub.clear_log();
    let parsed = model.plan(Plan::Hub).parse_safetensors_metadata().await.unwrap();
    let paths: Vec<_> = hub.log().into_iter().map(|request| request.path).collect();
    assert_eq!(
        paths,
        ["/api/models/bigscience/bloom/safetensors-metadata/model.safetensors.index.json"]
    );
    assert_eq!(parsed.parameter_count(), expected.parameter_count());
    assert_eq!(parsed.report().breakdown, expected.report().breakdown);
    assert_eq!(parsed.report().commit, expected.report().commit);
    let json = serde_json::to_value(parsed.report()).unwrap();
    assert_eq!((&json["plan"], &json["checkedAgainstBytes"]), (&"hub".into(), &false.into()));
    let json = serde_json::to_value(expected.report()).unwrap();
    assert_eq!((&json["plan"], &json["checkedAgainstBytes"]), (&"exact".into(), &true.into()));
}

/// The configuration of a quantized model takes another request.
#[tokio::test]
async fn packed_shards_are_unpacked() {
    let index = support::index(&[("m.weight", "a.safetensors"), ("m.scales", "b.safetensors")]);
    let scales = [("m.scales", "BF16", &[3, 2][..], 2), ("m.biases", "BF16", &[3, 2], 2)];
    let repo = Repo::new("org/model")
        .file("sub/model.safetensors.index.json", index)
        .file("sub/a.safetensors", tensors(&[("m.weight", "U32", &[3, 16], 4)]))
        .file("sub/b.safetensors", tensors(&scales))
        .file("config.json", File::from_bytes(r#"{"quantization":{"bits":4,"group_size":64}}"#));
    let hub = LocalHub::start([repo]).unwrap();
    let model = support::client(&hub).model("org/model").path("sub").plan(Plan::Hub);
    let report = model.count().await.unwrap();
    assert_eq!((report.parameter_count.total(), report.plan), (384, Plan::Hub));
    assert_eq!(hub.log().iter().filter(|request| is_headers(request)).count(), 1);
    let paths: Vec<_> = report.filepaths.iter().map(ToString::to_string).collect();
    assert_eq!(paths, ["sub/a.safetensors", "sub/b.safetensors"]);
}

/// The configuration lies next to the weights, and belongs to the commit of the answer.
#[tokio::test]
async fn the_configuration_of_the_folder_and_of_the_commit_is_read() {
    let index = support::index(&[("m.weight", "a.safetensors"), ("m.scales", "b.safetensors")]);
    let scales = [("m.scales", "BF16", &[3, 2][..], 2), ("m.biases", "BF16", &[3, 2], 2)];
    let config = |group: u64| {
        let config = format!(r#"{{"quantization":{{"bits":4,"group_size":{group}}}}}"#);
        File::from_bytes(config)
    };
    let repo = || {
        Repo::new("org/model")
            .file("sub/model.safetensors.index.json", index.clone())
            .file("sub/a.safetensors", tensors(&[("m.weight", "U32", &[3, 16], 4)]))
            .file("sub/b.safetensors", tensors(&scales))
            .file("config.json", config(32))
    };
    let hub = LocalHub::start([repo().file("sub/config.json", config(64))]).unwrap();
    let model = support::client(&hub).model("org/model").path("sub").plan(Plan::Hub);
    let report = model.count().await.unwrap();
    assert_eq!((report.parameter_count.total(), report.plan), (384, Plan::Hub));
    let commit = report.commit.unwrap();
    let configs = hub.log().into_iter().filter(|request| request.path.ends_with("config.json"));
    let paths: Vec<_> = configs.map(|request| request.path).collect();
    let pinned = format!("{commit}/sub/config.json");
    assert!(!paths.is_empty() && paths.iter().all(|path| path.ends_with(&pinned)), "{paths:?}");
}

#[tokio::test]
async fn everything_else_is_read_from_the_files() {
    let hub = support::fixtures_hub();
    let client = support::client(&hub);
    let commit = "728837f462e36c1b795e49678e0a86cf0eb463df";
    for (model, asks) in [
        (client.model("gpt2"), 1),
        (client.model(BLOOM).revision(commit), 0),
        (client.model(BLOOM).path("model_00001-of-00072.safetensors"), 0),
    ] {
        hub.clear_log();
        let report = model.plan(Plan::Hub).count().await.unwrap();
        assert_eq!(report.plan, Plan::Prefetch);
        assert_eq!(hub.log().iter().filter(|request| is_headers(request)).count(), asks);
    }
    for status in [403, 500, 501] {
        hub.inject(move |request, _| {
            is_headers(request).then(|| Fault::Status(status, Vec::new()))
        });
        let report = client.model(BLOOM).plan(Plan::Hub).count().await.unwrap();
        assert_eq!(report.plan, Plan::Prefetch, "{status}");
    }
}

/// The cache stores header bytes, and the answer has none.
#[tokio::test]
async fn responses_are_not_cached_and_cached_headers_are_preferred() {
    let (hub, cache) = (support::fixtures_hub(), tempfile::tempdir().unwrap());
    let client = Client::builder().endpoint(hub.endpoint());
    let client = client.header_cache(DiskCache::new(cache.path())).build().unwrap();
    let (model, paths) = (client.model(BLOOM), ["/safetensors-metadata/", "/resolve/main/"]);
    for (plan, used, path) in [
        (Plan::Hub, Plan::Hub, paths[0]),
        (Plan::Hub, Plan::Hub, paths[0]),
        (Plan::Exact, Plan::Exact, ""),
        (Plan::Hub, Plan::Prefetch, paths[1]),
    ] {
        hub.clear_log();
        assert_eq!(model.clone().plan(plan).count().await.unwrap().plan, used);
        let log = hub.log();
        assert!(path.is_empty() || log.len() == 1 && log[0].path.contains(path), "{log:?}");
    }
}

/// A wrong answer of the Hub is not found by this plan, but by `verify`, which reads the files.
#[tokio::test]
async fn verify_reads_the_files() {
    let claim =
        r#"{"headers":{"a.safetensors":{"w":{"dtype":"BF16","shape":[7],"data_offsets":[0,14]}}}}"#;
    let hub = LocalHub::start([support::sharded("org/model").hub_headers(claim)]).unwrap();
    let model = support::client(&hub).model("org/model").plan(Plan::Hub);
    let report = model.count().await.unwrap();
    assert_eq!((report.parameter_count.total(), report.plan), (7, Plan::Hub));
    hub.clear_log();
    assert!(model.verify().await.unwrap().is_valid());
    assert!(!hub.log().iter().any(is_headers));
}

#[tokio::test]
async fn an_endless_response_is_cut_off() {
    let hub = LocalHub::start([support::sharded("org/model").hub_headers("{}")]).unwrap();
    hub.inject(|request, _| is_headers(request).then_some(Fault::ENDLESS_BODY));
    let report = support::client(&hub).model("org/model").plan(Plan::Hub).count().await.unwrap();
    assert_eq!(report.plan, Plan::Prefetch);
    let bytes = report.fetch.bytes_read;
    assert!((64_000_000..66_000_000).contains(&bytes), "{bytes} bytes");
}

/// An answer of another form is no answer, and an invalid header in it is an error, as in a file.
#[tokio::test]
async fn responses_are_validated() {
    let shard = |name: &str, header: &str| format!(r#"{{"headers":{{"{name}":{header}}}}}"#);
    let outside = shard("../x.safetensors", "{}");
    for answer in ["", "[]", "{}", r#"{"headers":{}}"#, r#"{"headers":[]}"#, &outside] {
        let repo = support::sharded("org/model").hub_headers(answer);
        let hub = LocalHub::start([repo]).unwrap();
        let report = support::client(&hub).model("org/model").plan(Plan::Hub).count().await;
        assert_eq!(report.unwrap().plan, Plan::Prefetch, "{answer}");
    }
    for header in ["[]", r#"{"w":{"dtype":"BF16","shape":[7],"data_offsets":[0,13]}}"#] {
        let repo = support::sharded("org/model").hub_headers(&shard("a.safetensors", header));
        let hub = LocalHub::start([repo]).unwrap();
        let error = support::client(&hub).model("org/model").plan(Plan::Hub).count().await;
        assert!(matches!(error, Err(Error::InvalidHeader { .. })), "{error:?}");
    }
}
