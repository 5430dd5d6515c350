//! Repositories in the disk cache of `huggingface_hub`, read without a request.

mod cache;

use hf_meta::internal::{HeaderBytes, recount};
use hf_meta::{Client, DiskCache, Error, Source};
use hf_meta_count::results::Finding;

use self::cache::{ALL, COMMIT, OLDER, Offline, write};
#[cfg(unix)]
use self::cache::{Files, link};
use crate::hub::LocalHub;
use crate::support::{error_chain, file_start, two_commits};

/// Returns a file with one tensor of one byte.
fn weights(tensor: &str) -> Vec<u8> {
    let header = format!(r#"{{"{tensor}":{{"dtype":"BOOL","shape":[1],"data_offsets":[0,1]}}}}"#);
    [file_start(&header), vec![0]].concat()
}

const INDEX: &[u8] = br#"{"weight_map":{"x":"a.safetensors","yy":"b.safetensors"}}"#;

#[tokio::test]
async fn a_revision_is_read_at_its_cached_commit() {
    for files in ALL {
        let offline = Offline::new();
        let home = "models--org--model";
        for (path, content) in [
            ("model.safetensors.index.json", INDEX),
            ("a.safetensors", &weights("x")),
            ("b.safetensors", &weights("yy")),
        ] {
            offline.add(home, COMMIT, path, content, files);
        }
        offline.add(home, OLDER, "model.safetensors", &weights("older"), files);
        offline.point(home, "main", COMMIT);
        offline.point(home, "refs/pr/1", &format!("{OLDER}\n"));
        write(&offline.home(home).join(".no_exist").join(COMMIT).join("model.safetensors"), "");
        for (revision, commit, tensors) in
            [("main", COMMIT, 2), ("refs/pr/1", OLDER, 1), (COMMIT, COMMIT, 2), (OLDER, OLDER, 1)]
        {
            let parsed = offline.parse("org/model", revision).await.unwrap();
            assert_eq!(parsed.parameter_count().total(), tensors, "{revision}");
            let facts = parsed.report();
            assert_eq!(facts.commit.as_ref().unwrap().as_str(), commit, "{revision}");
            assert_eq!((facts.fetch.requests, &*facts.findings), (0, &[][..]));
            assert_eq!(facts.source, format!("org/model@{revision}"));
        }
    }
}

#[tokio::test]
async fn repositories_of_all_kinds_are_found() {
    let offline = Offline::new();
    for (home, repo) in [
        ("models--gpt2", "gpt2"),
        ("datasets--org--set", "datasets/org/set"),
        ("spaces--org--app", "spaces/org/app"),
    ] {
        offline.point(home, "main", COMMIT);
        offline.add(home, COMMIT, "deep/down/any.safetensors", &weights("x"), ALL[0]);
        let parsed = offline.parse(repo, "main").await.unwrap();
        assert_eq!(parsed.report().filepaths[0].as_str(), "deep/down/any.safetensors", "{repo}");
        assert_eq!(parsed.report().findings, [Finding::PartialListing], "{repo}");
    }
}

/// The component of a pipeline that was downloaded is not the model.
#[tokio::test]
async fn the_saved_listing_takes_precedence_over_downloaded_files() {
    let offline = Offline::new();
    let home = "models--org--pipeline";
    let [unet, vae] =
        ["unet", "vae"].map(|folder| format!("{folder}/diffusion_pytorch_model.safetensors"));
    offline.point(home, "main", COMMIT);
    offline.add(home, COMMIT, &vae, &weights("x"), ALL[0]);
    let tree = offline.home(home).join("trees").join(format!("{COMMIT}.json"));
    let parse = || offline.parse("org/pipeline", "main");
    for unknown in ["", "{", r#"{"format_version":2,"files":{}}"#] {
        write(&tree, unknown);
        let parsed = parse().await.unwrap();
        assert_eq!(parsed.report().findings, [Finding::PartialListing], "{unknown}");
    }
    let files =
        format!(r#"{{"{unet}":{{"size":9,"lfs_size":12}},"{vae}":{{"size":9,"blob_id":"x"}}}}"#);
    write(&tree, format!(r#"{{"format_version":1,"files":{files}}}"#));
    let error = error_chain(&parse().await.unwrap_err());
    assert!(error.starts_with(&format!("`org/pipeline/{unet}` not found")), "{error}");
    assert!(error.ends_with("only downloaded files can be read"), "{error}");
    offline.add(home, COMMIT, &unet, &weights("u"), ALL[0]);
    let parsed = parse().await.unwrap();
    assert_eq!(
        (parsed.report().filepaths[0].as_str(), &*parsed.report().findings),
        (&*unet, &[][..])
    );
    let others = parsed.report().other_sets.as_ref().unwrap();
    assert_eq!((others[0].path.as_str(), others[0].bytes), (&*vae, 9));
    let model = offline.builder().build().unwrap().model("org/pipeline").path("vae");
    let parsed = model.parse_safetensors_metadata().await.unwrap();
    assert_eq!(parsed.report().filepaths[0].as_str(), vae);
}

#[tokio::test]
async fn an_error_names_the_missing_part_of_the_cache() {
    let offline = Offline::new();
    let home = "models--org--part";
    offline.point(home, "main", COMMIT);
    offline.point(home, "gone", OLDER);
    offline.point(home, "broken", "main");
    offline.point(home, "long", &COMMIT.repeat(1000));
    write(&offline.home("models--org").join("secret"), COMMIT);
    offline.add(home, COMMIT, "model.safetensors.index.json", INDEX, ALL[0]);
    offline.add(home, COMMIT, "a.safetensors", &weights("x"), ALL[0]);
    offline.add(
        "models--org--shards",
        COMMIT,
        "m-00001-of-00002.safetensors",
        &weights("x"),
        ALL[0],
    );
    offline.point("models--org--shards", "main", COMMIT);
    offline.add("models--org--none", COMMIT, "config.json", b"{}", ALL[0]);
    offline.point("models--org--none", "main", COMMIT);
    let not_cached = |repo: &str, revision: &str| {
        format!("`{repo}` at `{revision}` is not in the cache, and the client is offline: `")
    };
    let cases = [
        (
            "org/other",
            "main",
            not_cached("org/other", "main"),
            "models--org--other` does not exist",
        ),
        ("org/part", "v1", not_cached("org/part", "v1"), "v1` does not exist"),
        ("org/part", "gone", not_cached("org/part", "gone"), &format!("{OLDER}` does not exist")),
        ("org/part", "broken", not_cached("org/part", "broken"), "does not contain a commit"),
        ("org/part", "long", not_cached("org/part", "long"), "does not contain a commit"),
        (
            "org/part",
            r"x\..\..\models--org\secret",
            not_cached("org/part", r"x\..\..\models--org\secret"),
            "refs` does not contain the revision",
        ),
        (
            "org/part",
            "main",
            "`org/part/b.safetensors` not found: `".to_owned(),
            "only downloaded files can be read",
        ),
        (
            "org/shards",
            "main",
            "`org/shards/m-*-of-00002.safetensors` not found: `".to_owned(),
            "does not contain all shards; only downloaded files can be read",
        ),
        (
            "org/none",
            "main",
            "no supported weights in `org/none@main`".to_owned(),
            "only downloaded files can be read",
        ),
    ];
    for (repo, revision, start, end) in cases {
        let error = offline.parse(repo, revision).await.unwrap_err();
        let said = error_chain(&error);
        assert!(said.starts_with(&start) && said.ends_with(end), "{said}");
        assert!(error.is_not_found() || error.has_no_weights(), "{error:?}");
    }
    {
        let client = offline.builder().build().unwrap();
        let names = ["org/other", "org/part", "org/shards", "org/none"];
        let expected = ["failed"; 4].map(|status| (status.to_owned(), false));
        assert_eq!(statuses(&client, &names).await, expected, "a later download may have them");
    }
}

/// Returns the status of each row of a census, and whether it has figures.
async fn statuses(client: &Client, names: &[&str]) -> Vec<(String, bool)> {
    let manifest =
        hf_meta_census::Manifest::from_names(names.iter().map(ToString::to_string)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().display().to_string();
    hf_meta_census::Census::create(client.clone(), &target).unwrap().read(&manifest).await.unwrap();
    let packed = folder.path().join("rows.parquet");
    hf_meta_census::Census::open(client.clone(), &target)
        .unwrap()
        .pack(&packed.display().to_string())
        .await
        .unwrap();
    let rows =
        hf_meta_census::rows::<hf_meta_census::CensusRow>(&packed).unwrap().map(Result::unwrap);
    let mut rows: Vec<_> =
        rows.map(|row| (row.repo, row.status, row.parameter_total.is_some())).collect();
    rows.sort();
    rows.into_iter().map(|(_, status, is_counted)| (status, is_counted)).collect()
}

/// The count of packed weights depends on the configuration.
#[tokio::test]
async fn a_config_missing_from_the_cache_is_a_finding() {
    let offline = Offline::new();
    let home = "models--org--packed";
    offline.point(home, "main", COMMIT);
    let header = r#"{"w.table":{"dtype":"I32","shape":[1,1],"data_offsets":[0,4]}}"#;
    let file = [file_start(header), vec![0; 4]].concat();
    offline.add(home, COMMIT, "model.safetensors", &file, ALL[0]);
    let parsed = offline.parse("org/packed", "main").await.unwrap();
    let findings = &parsed.report().findings;
    assert!(findings[0].to_string().ends_with("the file was not downloaded"), "{findings:?}");
    offline.add(home, COMMIT, "config.json", b"{}", ALL[0]);
    assert_eq!(offline.parse("org/packed", "main").await.unwrap().report().findings, []);
}

#[cfg(unix)]
#[tokio::test]
async fn links_out_of_the_cache_are_rejected() {
    let offline = Offline::new();
    let outside = tempfile::tempdir().unwrap();
    let secret = outside.path().join("secret.safetensors");
    write(&secret, weights("secret"));
    offline.add("models--org--other", COMMIT, "model.safetensors", &weights("x"), Files::Copied);
    let other = offline.home("models--org--other").join("snapshots").join(COMMIT);
    for target in [secret, other.join("model.safetensors")] {
        let home = "models--org--model";
        offline.point(home, "main", COMMIT);
        let file = offline.home(home).join("snapshots").join(COMMIT).join("model.safetensors");
        link(&file, &target);
        let error = offline.parse("org/model", "main").await.unwrap_err();
        assert_eq!(
            error_chain(&error),
            "failed to read `org/model/model.safetensors`: it is a link that leads outside the cache"
        );
    }
    // The cache folder itself may be a link, for example to a larger disk.
    let elsewhere = outside.path().join("cache");
    link(&elsewhere, offline.cache.path());
    let client = offline.builder().hub_cache(elsewhere).build().unwrap();
    client.model("org/other").revision(COMMIT).parse_safetensors_metadata().await.unwrap();
}

#[tokio::test]
async fn an_offline_client_reads_local_files_and_the_cache_only() {
    let offline = Offline::new();
    let client = offline.builder().build().unwrap();
    let url: Source = "https://example.org/x.safetensors?sig=s3cr3t".parse().unwrap();
    let error = client.source(url).parse_safetensors_metadata().await.unwrap_err();
    assert_eq!(error.to_string(), "cannot read `https://example.org/x.safetensors…` offline");
    assert!(error.is_usage());
    let file = offline.cache.path().join("x.safetensors");
    write(&file, weights("x"));
    client.source(Source::Local(file)).parse_safetensors_metadata().await.unwrap();
    let error = Client::builder().offline(true).build().unwrap_err();
    assert!(
        matches!(error, Error::InvalidSetting { setting: "hub_cache", .. }) && error.is_usage(),
        "{error:?}"
    );
}

/// A download of other files only, such as a tokenizer, leaves a snapshot without weights.
#[tokio::test]
async fn cached_headers_are_read_if_no_weights_were_downloaded() {
    let hub = LocalHub::start([two_commits("org/model", COMMIT, OLDER)]).unwrap();
    let (headers, offline) = (tempfile::tempdir().unwrap(), Offline::new());
    let client = || {
        let builder = Client::builder().endpoint(hub.endpoint()).hub_cache(offline.cache.path());
        builder.header_cache(DiskCache::new(headers.path()))
    };
    client().build().unwrap().model("org/model").count().await.unwrap();
    hub.clear_log();
    let client = client().offline(true).build().unwrap();
    let home = "models--org--model";
    let add_snapshot = |path: &str, content: &[u8]| {
        offline.point(home, "main", OLDER);
        offline.add(home, OLDER, path, content, ALL[0]);
    };
    for (path, content) in [("", &b""[..]), ("tokenizer.json", b"{}")] {
        if !path.is_empty() {
            add_snapshot(path, content);
        }
        for revision in ["main", COMMIT] {
            let report = client.model("org/model").revision(revision).count().await.unwrap();
            assert_eq!(report.commit.unwrap().as_str(), COMMIT, "{path}");
            assert_eq!((report.parameter_count.total(), report.fetch.requests), (1, 0));
        }
    }
    let error = client.model("org/other").count().await.unwrap_err();
    assert!(matches!(error, Error::NotCached { .. }), "{error:?}");
    add_snapshot("model.safetensors", &weights("downloaded"));
    let report = client.model("org/model").count().await.unwrap();
    assert_eq!(report.commit.unwrap().as_str(), OLDER, "downloaded files come first");
    assert!(hub.log().is_empty());
}

/// The bytes come from an earlier call, so downloading the missing file would not help.
#[tokio::test]
async fn a_recount_of_incomplete_shards_does_not_ask_for_downloads() {
    let offline = Offline::new();
    offline.point("models--org--model", "main", COMMIT);
    offline.add(
        "models--org--model",
        COMMIT,
        "x-00001-of-00002.safetensors",
        &weights("x"),
        ALL[0],
    );
    let model = offline.builder().build().unwrap().model("org/model").revision(COMMIT);
    let error = model.count().await.unwrap_err();
    assert!(matches!(error, Error::FileNotFound { .. }), "{error:?}");
    let path = "x-00001-of-00002.safetensors".parse::<hf_meta::RepoPath>().unwrap();
    let bytes = HeaderBytes::new(COMMIT.parse().unwrap());
    let error = recount(&model.known_files([path]), bytes).await.unwrap_err();
    assert!(matches!(error, Error::IncompleteShards { found: 1, total: 2, .. }), "{error:?}");
}
