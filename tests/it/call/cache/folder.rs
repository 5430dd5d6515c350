//! The folder of a disk cache, and damage to it.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use hf_meta::DiskCache;
use hf_meta_testing::conformance;

use super::{builder, figures, files, parse};
use crate::hub::{LocalHub, Repo};
use crate::support;

/// `hf-meta-testing` checks the cache in memory.
#[tokio::test]
async fn a_disk_cache_conforms() {
    let folder = tempfile::tempdir().unwrap();
    conformance::check_cache(DiskCache::new(folder.path())).await.unwrap();
}

#[tokio::test]
async fn a_corrupt_entry_is_read_again_and_replaced() {
    let hub = LocalHub::start([support::sharded("org/model")]).unwrap();
    let damage: [fn(Vec<u8>) -> Vec<u8>; 5] = [
        |_| Vec::new(),
        |entry| entry[..entry.len() / 2].to_vec(),
        |mut entry| {
            entry[40] ^= 1;
            entry
        },
        |entry| vec![0; entry.len()],
        |entry| [entry, vec![0]].concat(),
    ];
    for damage in damage {
        let folder = tempfile::tempdir().unwrap();
        let fresh = parse(builder(&hub, folder.path()), "org/model").await.unwrap();
        let entries = files(folder.path());
        assert_eq!(
            entries.len(),
            3,
            "the headers, and what the reader may read at the branch and the commit"
        );
        for entry in &entries {
            fs::write(entry, damage(fs::read(entry).unwrap())).unwrap();
        }
        let again = parse(builder(&hub, folder.path()), "org/model").await.unwrap();
        assert_eq!(figures(&again), figures(&fresh));
        assert_eq!(again.report().fetch.requests, fresh.report().fetch.requests);
        let replaced = parse(builder(&hub, folder.path()), "org/model").await.unwrap();
        assert_eq!(replaced.report().fetch.requests, 1);
    }
}

/// The entry is valid, but it has another key: a file was copied.
#[tokio::test]
async fn a_swapped_entry_is_a_miss() {
    let repos = [
        Repo::new("org/a").file("model.safetensors", support::weights(&["x"])),
        Repo::new("org/b").file("model.safetensors", support::weights(&["x", "y"])),
    ];
    let hub = LocalHub::start(repos).unwrap();
    let folder = tempfile::tempdir().unwrap();
    parse(builder(&hub, folder.path()), "org/a").await.unwrap();
    let of_a = files(folder.path());
    parse(builder(&hub, folder.path()), "org/b").await.unwrap();
    for other in files(folder.path()) {
        if !of_a.contains(&other) {
            let same_kind = |entry: &&PathBuf| {
                (fs::read(entry).unwrap().len() > 115) == (fs::read(&other).unwrap().len() > 115)
            };
            fs::copy(of_a.iter().find(same_kind).unwrap(), &other).unwrap();
        }
    }
    let parsed = parse(builder(&hub, folder.path()), "org/b").await.unwrap();
    assert_eq!(parsed.parameter_count().total(), 2);
}

#[tokio::test]
async fn an_unusable_folder_does_not_fail_a_call() {
    let hub = LocalHub::start([support::sharded("org/model")]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    for _ in 0..2 {
        let parsed = parse(builder(&hub, &file), "org/model").await.unwrap();
        assert_eq!(parsed.parameter_count().total(), 2);
    }
}

#[tokio::test]
async fn the_cache_stays_within_its_limit() {
    let repo =
        |n| Repo::new(&format!("org/m{n}")).file("model.safetensors", support::weights(&["x"]));
    let hub = LocalHub::start((0..200).map(repo)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let cache = DiskCache::with_limit(folder.path(), 80 * 4_096);
    let client = hf_meta::Client::builder().endpoint(hub.endpoint()).header_cache(cache.clone());
    let client = client.build().unwrap();
    for n in 0..200 {
        client.model(format!("org/m{n}")).parse_safetensors_metadata().await.unwrap();
        // Between two checks a process writes a 16th of the limit, and one entry.
        assert!(cache.usage().unwrap().bytes <= 86 * 4_096, "after {n}");
    }
    hub.clear_log();
    client.model("org/m199").parse_safetensors_metadata().await.unwrap();
    assert_eq!(hub.log().len(), 1, "the newest are those that stay");
    assert!(cache.usage().unwrap().entries > 10);
}

#[tokio::test]
async fn clearing_deletes_entries_and_nothing_else() {
    let hub = LocalHub::start([support::sharded("org/model")]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let other = folder.path().join("letter.txt");
    fs::write(&other, "dear").unwrap();
    let first = parse(builder(&hub, folder.path()), "org/model").await.unwrap();
    let groups = folder.path().join("v1");
    // File servers create such folders.
    fs::create_dir_all(groups.join("00/@eaDir")).unwrap();
    let mut unused = (0..=u8::MAX).map(|group| groups.join(format!("{group:02x}")));
    let (link, elsewhere) =
        (unused.find(|group| !group.exists()).unwrap(), tempfile::tempdir().unwrap());
    fs::write(elsewhere.path().join("letter.txt"), "dear").unwrap();
    std::os::unix::fs::symlink(elsewhere.path(), &link).unwrap();
    let cache = DiskCache::new(folder.path());
    assert_eq!(cache.usage().unwrap().entries, 3);
    assert_eq!(cache.clear().unwrap().entries, 3);
    assert!(elsewhere.path().join("letter.txt").exists());
    fs::remove_file(link).unwrap();
    assert_eq!(files(folder.path()), [other]);
    let again = parse(builder(&hub, folder.path()), "org/model").await.unwrap();
    assert_eq!(again.report().fetch.requests, first.report().fetch.requests);
    assert!(serde_json::to_string(&again.report()).unwrap().contains("\"parameterTotal\":2"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_readers_and_writers_share_a_folder() {
    let hub = support::fixtures_hub();
    let folder = tempfile::tempdir().unwrap();
    let reads = (0..32).map(|n| {
        let repo = ["gpt2", "roberta-base", "bigscience/bloom-560m"][n % 3];
        let builder = builder(&hub, folder.path());
        tokio::spawn(async move { parse(builder, repo).await.unwrap().parameter_count().total() })
    });
    let totals: Vec<_> = futures::future::join_all(reads.collect::<Vec<_>>()).await;
    let expected = [137_022_720, 124_697_433 + 514, 559_214_592];
    for (n, total) in totals.into_iter().enumerate() {
        assert_eq!(total.unwrap(), expected[n % 3]);
    }
    // On a busy machine, a call may end before its entries are written, and the writes continue.
    let found = || {
        let entries = DiskCache::new(folder.path()).usage().unwrap().entries;
        (entries, files(folder.path()).len())
    };
    let all_written = async {
        while found() != (9, 9) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let all_written = tokio::time::timeout(Duration::from_secs(60), all_written).await;
    assert!(all_written.is_ok(), "three entries per repository and no other file: {:?}", found());
}
