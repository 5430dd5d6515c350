//! Custom stores, small files, calls from synchronous code, and results read from JSON.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::TryStreamExt;
use futures::future::{BoxFuture, FutureExt, ready};
use hf_meta::{
    Client, CountSummary, Error, ErrorKind, FileStore, Model, RangeBytes, RepoPath, Revision,
    TensorSelection, block_on,
};
use hf_meta_format::formats::weight_sets::ListedFile;

use crate::hub::{File, LocalHub, Repo};
use crate::support;

/// Files in memory. A listing fails if `lists` is false.
#[derive(Clone, Debug)]
struct Bucket {
    files: BTreeMap<RepoPath, Vec<u8>>,
    lists: bool,
    /// True if a listing contains the files of other folders.
    ignores_folder: bool,
}

impl FileStore for Bucket {
    fn read_range<'a>(
        &'a self,
        path: &'a RepoPath,
        range: Range<u64>,
    ) -> BoxFuture<'a, io::Result<RangeBytes>> {
        let file = self.files.get(path).ok_or(io::Error::from(io::ErrorKind::NotFound));
        let read = |file: &Vec<u8>| {
            let [start, end] = [range.start, range.end]
                .map(|offset| usize::try_from(offset).unwrap_or(usize::MAX).min(file.len()));
            // A careless store returns more than was asked for.
            let bytes = file[start..file.len().min(end + 1)].to_vec();
            RangeBytes::new(bytes, file.len() as u64)
        };
        ready(file.map(read)).boxed()
    }

    fn list<'a>(
        &'a self,
        folder: Option<&'a RepoPath>,
    ) -> BoxFuture<'a, io::Result<Option<Vec<ListedFile>>>> {
        let file = |(path, file): (&RepoPath, &Vec<u8>)| ListedFile {
            path: path.clone(),
            size: file.len() as u64,
        };
        let is_listed = |file: &ListedFile| self.ignores_folder || file.is_below(folder);
        let files = self.files.iter().map(file).filter(is_listed).collect();
        let denied = io::Error::from(io::ErrorKind::PermissionDenied);
        ready(if self.lists { Ok(Some(files)) } else { Err(denied) }).boxed()
    }
}

/// A file of one `F32` tensor with `elements` elements.
fn file(name: &str, elements: usize) -> Vec<u8> {
    let end = 4 * elements;
    let header =
        format!(r#"{{"{name}":{{"dtype":"F32","shape":[{elements}],"data_offsets":[0,{end}]}}}}"#);
    [support::file_start(&header), vec![0; end]].concat()
}

fn bucket() -> Bucket {
    let index = br#"{"weight_map":{"a":"1.safetensors","b":"2.safetensors"}}"#.to_vec();
    let files = [
        ("sharded/model.safetensors.index.json", index),
        ("sharded/1.safetensors", file("a", 3)),
        ("sharded/2.safetensors", file("b", 4)),
        ("other/my-weights.safetensors", file("c", 5)),
    ];
    let files = files.map(|(path, bytes)| (path.parse().unwrap(), bytes));
    Bucket { files: BTreeMap::from(files), lists: true, ignores_folder: false }
}

#[tokio::test]
async fn a_custom_store_is_read_like_a_folder() {
    let client = Client::new().unwrap();
    let model = |path: &str| client.model("bucket/models").store(bucket()).path(path);
    let report = model("sharded").count().await.unwrap();
    assert_eq!((report.parameter_count.total(), report.file_count()), (7, 2));
    assert_eq!((&*report.source, report.commit), ("hf://bucket/models@main/sharded", None));
    assert!(report.fetch.requests >= 4 && report.fetch.bytes_read > 0);
    assert_eq!(model("other").count().await.unwrap().parameter_count.total(), 5);
    assert!(model("sharded").verify().await.unwrap().is_valid());
    assert!(matches!(model("none").count().await, Err(Error::NoWeights { .. })));

    let closed = Bucket { lists: false, ..bucket() };
    let error =
        client.model("bucket").store(closed.clone()).path("other").count().await.unwrap_err();
    assert!(matches!(error, Error::StoreFailed { .. }), "{error:?}");
    assert_eq!(
        (error.kind(), &*error.to_string()),
        (ErrorKind::Forbidden, "failed to read `bucket`")
    );
    let direct = client.model("bucket").store(closed).path("other/my-weights.safetensors");
    assert_eq!(direct.count().await.unwrap().parameter_count.total(), 5);
}

/// A bucket with a name, whose reads fail.
#[derive(Debug)]
struct Failing(io::ErrorKind);

impl FileStore for Failing {
    fn read_range<'a>(
        &'a self,
        _path: &'a RepoPath,
        _range: Range<u64>,
    ) -> BoxFuture<'a, io::Result<RangeBytes>> {
        ready(Err(self.0.into())).boxed()
    }

    fn name(&self) -> Option<String> {
        Some("s3://bucket/models".to_owned())
    }
}

#[tokio::test]
async fn the_errors_of_a_store_have_its_name_and_their_kind() {
    let client = Client::new().unwrap();
    for (cause, kind) in [
        (io::ErrorKind::TimedOut, ErrorKind::Timeout),
        (io::ErrorKind::ConnectionReset, ErrorKind::Network),
        (io::ErrorKind::PermissionDenied, ErrorKind::Forbidden),
        (io::ErrorKind::NotFound, ErrorKind::FileNotFound),
    ] {
        let model = client.model("m").store(Failing(cause)).path("x.safetensors");
        let error = model.count().await.unwrap_err();
        assert_eq!(error.kind(), kind);
        assert!(error.to_string().contains("`s3://bucket/models/x.safetensors`"), "{error}");
    }
}

/// A bucket whose files get a new version after some reads.
#[derive(Debug)]
struct Changing {
    files: Bucket,
    reads: AtomicUsize,
    change_after: usize,
}

impl FileStore for Changing {
    fn read_range<'a>(
        &'a self,
        path: &'a RepoPath,
        range: Range<u64>,
    ) -> BoxFuture<'a, io::Result<RangeBytes>> {
        let is_old = self.reads.fetch_add(1, Ordering::Relaxed) < self.change_after;
        let version = if is_old { "\"old\"" } else { "\"new\"" };
        let read = self.files.read_range(path, range);
        read.map(move |read| read.map(|read| read.with_version(version))).boxed()
    }
}

#[tokio::test]
async fn a_call_reads_one_version_of_a_file() {
    let client = Client::new().unwrap();
    let model = |change_after| {
        let store = Changing { files: bucket(), reads: AtomicUsize::default(), change_after };
        client.model("bucket").store(store).path("other/my-weights.safetensors")
    };
    let unchanged = model(0);
    assert_eq!(unchanged.count().await.unwrap().parameter_total(), 5);
    // Two calls may read two versions.
    let between = model(2);
    for _ in 0..2 {
        assert_eq!(between.count().await.unwrap().parameter_total(), 5);
    }
    let error = model(1).count().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Changed);
    assert!(error.to_string().contains("its version was `\"old\"`, then `\"new\"`"), "{error}");
    // The data of a tensor belongs to the header that was read before.
    let selection = TensorSelection::patterns(["*"]);
    let reader = model(2).tensors(selection.clone()).await.unwrap();
    let error = reader.tensors().try_collect::<Vec<_>>().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Changed);
    let tensors = unchanged.tensors(selection).await.unwrap().tensors();
    assert_eq!(tensors.try_collect::<Vec<_>>().await.unwrap()[0].bytes.len(), 20);
}

/// Options take any text, and `set_some` an optional one.
#[tokio::test]
async fn options_take_all_kinds_of_text() {
    let hub = support::fixtures_hub();
    let client = support::client(&hub);
    let (owned, revision) = ("safetensors".to_owned(), Revision::default());
    let path: RepoPath = "model.safetensors".parse().unwrap();
    let some = |model: Model, path: Option<&str>| model.set_some(path, Model::path);
    for model in [
        client.model("gpt2").revision("main").path("model.safetensors").format("safetensors"),
        client.model("gpt2").revision(&revision).path(&path).format(&owned),
        client.model("gpt2").revision(revision).path(path).format(owned),
        some(client.model("gpt2").revision(Cow::Borrowed("main")), None),
        some(client.model("gpt2"), Some("model.safetensors")),
    ] {
        assert_eq!(model.count().await.unwrap().parameter_total(), 137_022_720);
    }
    assert!(some(client.model("gpt2"), Some("none")).count().await.is_err());
}

#[tokio::test]
async fn models_share_a_store() {
    let store: Arc<dyn FileStore> = Arc::new(bucket());
    let client = Client::new().unwrap();
    for (path, total) in [("sharded", 7), ("other", 5)] {
        let model = client.model("bucket").store(Arc::clone(&store)).path(path);
        assert_eq!(model.count().await.unwrap().parameter_total(), total);
    }
}

#[tokio::test]
async fn listed_files_outside_of_the_folder_are_ignored() {
    let store = Bucket { ignores_folder: true, ..bucket() };
    let model = Client::new().unwrap().model("bucket").store(store);
    for (path, files) in [("other", &["other/my-weights.safetensors"][..]), ("oth", &[])] {
        let sets = model.clone().path(path).weight_sets().await.unwrap().unwrap();
        let found: Vec<_> = sets.iter().map(|set| set.path.as_str()).collect();
        assert_eq!(found, files);
    }
}

#[tokio::test]
async fn a_small_file_is_read_at_the_revision_of_the_model() {
    let (old, new) = ("1".repeat(40), "2".repeat(40));
    let config = |text: &str| File::from_bytes(text.to_owned());
    let repo = Repo::new("org/model").commit(&new).file("config.json", config(r#"{"v":2}"#));
    let repo = repo.commit(&old).file("config.json", config(r#"{"v":1}"#));
    let hub = LocalHub::start([repo]).unwrap();
    let expired = Client::builder().endpoint(hub.endpoint()).token("hf_expired").build().unwrap();
    let client = support::client(&hub);
    let path: RepoPath = "config.json".parse().unwrap();
    let read = async |model: hf_meta::Model, limit| model.read_file(&path, limit).await;
    for client in [&client, &expired] {
        assert_eq!(read(client.model("org/model"), 100).await.unwrap(), br#"{"v":1}"#);
    }
    let pinned = client.model("org/model").revision(new.as_str());
    assert_eq!(read(pinned.clone(), 100).await.unwrap(), br#"{"v":2}"#);
    assert!(matches!(read(pinned, 3).await, Err(Error::TooLarge { limit: 3, .. })));
    let missing = client.model("org/model").read_file(&"none.json".parse().unwrap(), 100).await;
    assert!(matches!(missing, Err(Error::FileNotFound { .. })), "{missing:?}");
}

#[test]
fn synchronous_code_can_make_calls() {
    let hub = support::fixtures_hub();
    let client = support::client(&hub);
    for _ in 0..2 {
        let report = block_on(client.model("gpt2").count()).unwrap();
        assert_eq!(report.parameter_count.total(), 137_022_720);
    }
    assert!(block_on(client.model("org/none").count()).is_err());
    let threads: Vec<_> = ["gpt2", "roberta-base"]
        .map(|repo| (client.model(repo), repo))
        .into_iter()
        .map(|(model, _)| std::thread::spawn(move || block_on(model.count()).is_ok()))
        .collect();
    assert!(threads.into_iter().all(|thread| thread.join().unwrap()));
    let panic = std::panic::catch_unwind(|| block_on::<()>(async { panic!("of the call") }));
    assert!(panic.is_err());
    assert!(block_on(client.model("gpt2").count()).is_ok(), "the thread outlives a panic");
}

#[tokio::test]
async fn a_result_can_be_read_from_its_json() {
    let hub = support::fixtures_hub();
    for repo in ["bigscience/bloom", "openai/gpt-oss-20b", "example/Llama-3.2-1B-GGUF"] {
        let weights = support::client(&hub).model(repo).inspect().await.unwrap();
        let report = weights.report();
        let json = serde_json::to_string(report).unwrap();
        let expected: CountSummary = serde_json::from_str(&json).unwrap();
        assert_eq!(expected.source, report.source);
        assert_eq!(expected.commit, report.commit);
        assert_eq!((&*expected.format, expected.sharded), (report.format, report.sharded));
        let counts = expected.parameter_count.iter().map(|(dtype, count)| (dtype, *count));
        assert!(counts.eq(report.parameter_count.iter()));
        let totals = report.parameter_count.totals();
        assert_eq!(expected.parameter_total, totals.parameters);
        assert_eq!(expected.parameter_exact, report.is_exact());
        assert_eq!((expected.element_total, expected.byte_total), (totals.elements, totals.bytes));
        assert_eq!(expected.filepaths, report.filepaths);
        assert_eq!(expected.fetch.requests, report.fetch.requests);
        let texts = [serde_json::to_string(&weights), serde_json::to_string(&expected)];
        for text in texts {
            let mut read: CountSummary = serde_json::from_str(&text.unwrap()).unwrap();
            read.fetch.elapsed = expected.fetch.elapsed;
            assert_eq!(read, expected);
        }
    }
}

#[tokio::test]
async fn every_format_reports_its_quantization() {
    let hub = support::fixtures_hub();
    let cases = [
        ("gpt2", None),
        ("openai/gpt-oss-20b", Some("mxfp4")),
        ("example/Llama-3.2-1B-GGUF", Some("Q4_K_M")),
    ];
    for (repo, quantization) in cases {
        let report = support::client(&hub).model(repo).count().await.unwrap();
        assert_eq!(report.quantization(), quantization, "{repo}");
    }
}
