//! Repositories that change between the list and the reading, or while they are read.

use std::collections::BTreeMap;
use std::sync::Arc;

use hf_meta::Client;
use hf_meta_census::{Census, CensusRow, ListedRepo, Listing, Manifest};

use super::rows;
use crate::hub::{Fault, LocalHub, Repo};
use crate::support::{self, weights};

const OLD: &str = "1111111111111111111111111111111111111111";
const NEW: &str = "2222222222222222222222222222222222222222";

/// A repository at its first commit.
fn old(name: &str) -> Repo {
    Repo::new(name).commit(OLD).file("model.safetensors", weights(&["x"]))
}

/// A repository without its first commit.
fn rewritten(name: &str) -> Repo {
    Repo::new(name).commit(NEW).file("model.safetensors", weights(&["x", "y"]))
}

/// A repository after a push.
fn pushed(name: &str) -> Repo {
    old(name).commit(NEW).file("model.safetensors", weights(&["x", "y"]))
}

/// The columns that a change decides: status, kind of error, commit, parameters, current name.
type Expected =
    (&'static str, Option<&'static str>, &'static str, Option<i64>, Option<&'static str>);

/// A change after the list: the later repository, and the row of a list with commits.
type Change = (&'static str, Option<fn(&str) -> Repo>, Expected);

fn changes() -> [Change; 8] {
    let read = ("ok", None, OLD, Some(1), None);
    let refused = |status, kind| (status, Some(kind), "", None, None);
    [
        ("org/unchanged", Some(old), read),
        ("org/pushed", Some(pushed), read),
        ("org/rewritten", Some(rewritten), refused("gone", "revisionNotFound")),
        ("org/deleted", None, refused("gone", "repoNotFound")),
        ("org/private", Some(|name| old(name).private()), refused("gone", "repoNotFound")),
        ("org/gated", Some(|name| old(name).gated()), refused("gated", "gated")),
        ("org/disabled", Some(|name| old(name).disabled()), refused("denied", "forbidden")),
        (
            "org/moved",
            Some(|name| old("other/name").renamed_from(name)),
            ("ok", None, OLD, Some(1), Some("other/name")),
        ),
    ]
}

/// Asserts that each row has what the case expects.
fn assert_rows<'a>(
    rows: &BTreeMap<String, CensusRow>,
    expected: impl IntoIterator<Item = (&'a str, Expected)>,
) {
    let mut checked = 0;
    for (repo, expected) in expected {
        let row = &rows[repo];
        let found = (
            &*row.status,
            row.error_kind.as_deref(),
            row.commit.as_deref().unwrap_or(""),
            row.parameter_total,
            row.canonical_repo.as_deref(),
        );
        assert_eq!(found, expected, "{row:?}");
        checked += 1;
    }
    assert_eq!(rows.len(), checked);
}

async fn read(client: Client, manifest: &Manifest) -> BTreeMap<String, CensusRow> {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().display().to_string();
    let census = Census::create(client, &target).unwrap();
    census.read(manifest).await.unwrap();
    let read = rows(folder.path());
    // A count keeps what does not follow from the headers, such as a new name.
    census.count().await.unwrap();
    assert_eq!(rows(folder.path()), read);
    read
}

#[tokio::test]
async fn a_change_after_the_list_is_a_row_with_its_reason() {
    let before = LocalHub::start(changes().map(|(name, ..)| old(name))).unwrap();
    let later = changes().into_iter().filter_map(|(name, later, _)| Some(later?(name)));
    let after = LocalHub::start(later).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let list = folder.path().join("repos.parquet");
    Listing::new().write(&support::client(&before), &list).await.unwrap();
    let manifest = Manifest::open(&list, None).unwrap();
    let found = read(support::client(&after), &manifest).await;
    assert_rows(&found, changes().map(|(name, _, expected)| (name, expected)));
    // A list of names has no commits, so the newest ones are read.
    let names = Manifest::from_names(changes().map(|(name, ..)| name.to_owned())).unwrap();
    let found = read(support::client(&after), &names).await;
    let newest = changes().map(|(name, _, expected)| match name {
        "org/pushed" | "org/rewritten" => (name, ("ok", None, NEW, Some(2), None)),
        _ if expected.0 == "ok" => (name, expected),
        _ => (name, (expected.0, expected.1, "", None, None)),
    });
    assert_rows(&found, newest);
}

#[tokio::test]
async fn an_earlier_list_is_updated_with_the_changed_models() {
    let listed =
        |repo: Repo, year: &str| repo.listed("lastModified", format!("{year}-01-01T00:00:00.000Z"));
    let folder = tempfile::tempdir().unwrap();
    let (before, after) = (folder.path().join("before"), folder.path().join("after"));
    let hub =
        LocalHub::start(["org/kept", "org/pushed"].map(|name| listed(old(name), "2020"))).unwrap();
    let count = Listing::new().write(&support::client(&hub), &before).await.unwrap();
    assert_eq!(count, 2);
    // Deleted repositories remain.
    let changed = [listed(pushed("org/pushed"), "2999"), listed(old("org/new"), "2998")];
    let hub =
        LocalHub::start(changed.into_iter().chain([listed(old("org/other"), "2020")])).unwrap();
    let listing = Listing::new().update(&before).unwrap();
    assert_eq!(listing.write(&support::client(&hub), &after).await.unwrap(), 3);
    let rows = hf_meta_census::rows::<ListedRepo>(&after).unwrap().map(Result::unwrap);
    let rows: Vec<_> = rows.map(|row| (row.repo, row.commit.unwrap())).collect();
    let expected = [("org/pushed", NEW), ("org/new", OLD), ("org/kept", OLD)];
    assert_eq!(rows, expected.map(|(repo, commit)| (repo.to_owned(), commit.to_owned())));
    assert!(Listing::new().update(&folder.path().join("none")).is_err());
    // The updated list can be updated, too.
    let again = Listing::new().update(&after).unwrap();
    assert_eq!(again.write(&support::client(&hub), &before).await.unwrap(), 3);
}

/// A change of a repository of two shards after its index was read: the responses for its shards, and the row.
#[tokio::test]
async fn a_change_after_the_index_is_a_row_with_its_reason() {
    let status =
        |status, code: &str| Fault::Status(status, vec![("x-error-code", code.to_owned())]);
    let refused = |status, kind| (status, Some(kind), "", None, None);
    let cases: [(&str, Option<Fault>, Expected); 5] = [
        ("org/deleted", Some(status(401, "RepoNotFound")), refused("gone", "repoNotFound")),
        ("org/gated", Some(status(403, "GatedRepo")), refused("gated", "gated")),
        (
            "org/rewritten",
            Some(status(404, "RevisionNotFound")),
            refused("gone", "revisionNotFound"),
        ),
        ("org/taken-down", Some(status(403, "")), refused("denied", "forbidden")),
        ("org/pushed", None, ("ok", None, OLD, Some(2), None)),
    ];
    let files = |repo: Repo, tensors: [&str; 2]| {
        let index = support::index(&[(tensors[0], "a.safetensors"), (tensors[1], "b.safetensors")]);
        let repo = repo.file("model.safetensors.index.json", index);
        let repo = repo.file("a.safetensors", weights(&tensors[..1]));
        repo.file("b.safetensors", weights(&tensors[1..]))
    };
    let repos = cases.iter().map(|(name, ..)| {
        let pushed = files(Repo::new(name).commit(NEW), ["u", "v"]);
        files(pushed.commit(OLD), ["x", "y"])
    });
    let hub = Arc::new(LocalHub::start(repos).unwrap());
    let (faults, weak) = (cases.clone(), Arc::downgrade(&hub));
    hub.inject(move |request, _| {
        let is_shard =
            ["/a.safetensors", "/b.safetensors"].iter().any(|shard| request.path.ends_with(shard));
        let (name, fault, _) = faults.iter().find(|(name, ..)| request.path.contains(name))?;
        if is_shard && fault.is_none() {
            weak.upgrade()?.move_branch(name, "main", NEW);
        }
        if is_shard { fault.clone() } else { None }
    });
    let names = Manifest::from_names(cases.iter().map(|(name, ..)| (*name).to_owned())).unwrap();
    let found = read(support::client(&hub), &names).await;
    assert_rows(&found, cases.into_iter().map(|(name, _, expected)| (name, expected)));
}
