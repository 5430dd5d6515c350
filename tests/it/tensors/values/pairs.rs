//! Comparisons of two models by content.
//!
//! Add a test here if the values of two models differ.

use std::fs;
use std::path::Path;

use hf_meta::ValueCheck;
use safetensors::Dtype;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::{COLUMNS, Values};
use crate::command::run;
use crate::hub::{File, LocalHub, Repo};
use crate::support::{client, hex};

/// Starts a Hub with models that differ from the first one, with the hashes of their files.
fn pairs() -> LocalHub {
    let base = Values::new();
    let repo = |name: &str, bytes: Vec<u8>| {
        let hash = hex(Sha256::digest(&bytes));
        Repo::new(name).file("model.safetensors", File::from_bytes(bytes).hash(&hash))
    };
    let changed = |change: &dyn Fn(&mut Values)| {
        let mut values = base.clone();
        change(&mut values);
        values.file()
    };
    let tuned = |values: &mut Values| {
        for value in values
            .first
            .iter_mut()
            .chain(&mut values.second)
            .chain(&mut values.bias)
            .chain(&mut values.scale)
        {
            *value *= 1.01;
        }
    };
    // The product of two small matrices is added to one matrix.
    let merged = |values: &mut Values| {
        for (at, value) in values.second.iter_mut().enumerate() {
            let [row, column] = [at / COLUMNS, at % COLUMNS].map(|at| u16::try_from(at % 97 + 1));
            *value += f32::from(row.unwrap()) * f32::from(column.unwrap()) * 1e-6;
        }
    };
    // The same tensors with another metadata, so that the file has another hash.
    let metadata = Some([("format".to_owned(), "pt".to_owned())].into());
    let file = base.file();
    let tensors = safetensors::SafeTensors::deserialize(&file).unwrap();
    let resaved = safetensors::serialize(tensors.iter(), metadata).unwrap();
    let (old, new) = ("1".repeat(40), "2".repeat(40));
    let versions = Repo::new("org/versions")
        .commit(&new)
        .file("model.safetensors", File::from_bytes(changed(&|values| values.scale[3] = 0.25)))
        .commit(&old)
        .file("model.safetensors", File::from_bytes(base.file()))
        .revision("v1", &old)
        .revision("v2", &new);
    LocalHub::start([
        versions,
        sharded(&base),
        repo("org/merged", changed(&merged)),
        repo("org/bf16", base.bf16_file()),
        repo("org/base", base.file()),
        repo("org/copy", base.file()),
        repo("org/resaved", resaved),
        repo("org/tuned", changed(&tuned)),
        repo("org/one", changed(&|values| values.bias[3] += 1.0)),
        repo("org/other", crate::tensors::write_file(&[("w", Dtype::F32, &[4, 4])])),
    ])
    .unwrap()
}

/// The tensors of a model in two shards.
fn sharded(values: &Values) -> Repo {
    let file = values.file();
    let tensors = safetensors::SafeTensors::deserialize(&file).unwrap();
    let shard = |is_first: bool| {
        let of_shard = tensors.iter().filter(|(name, _)| name.starts_with("first") == is_first);
        let bytes = safetensors::serialize(of_shard, None).unwrap();
        let hash = hex(Sha256::digest(&bytes));
        File::from_bytes(bytes).hash(&hash)
    };
    let names = tensors.names();
    let of = |name: &str| if name.starts_with("first") { "1.safetensors" } else { "2.safetensors" };
    let map: Vec<_> = names.iter().map(|name| (&**name, of(name))).collect();
    Repo::new("org/resharded")
        .file("model.safetensors.index.json", crate::support::index(&map))
        .file("1.safetensors", shard(true))
        .file("2.safetensors", shard(false))
}

/// The pairs that people compare: a copy, the same repository at two commits, a fine-tuned model, a merged adapter, other
/// shards, another dtype, one changed tensor, and another architecture.
#[test]
fn two_models_are_compared_by_content() {
    let hub = pairs();
    let versions = run(&hub, &["diff", "--values=all", "org/versions@v1", "org/versions@v2"]);
    assert_eq!(versions.code, 1, "{}", versions.stderr);
    let line = "1 of 4 tensors differs: first.weight_scale\n";
    assert!(versions.stdout.starts_with(line), "{}", versions.stdout);
    let resharded = ["diff", "--values", "--ignore-shards", "org/base", "org/resharded"];
    assert_eq!(run(&hub, &resharded).code, 0);
    let cases = [
        ("org/versions@v1", 0, "same weights, other files: 4 tensors in a sample of 1.5"),
        ("org/merged", 1, "1 of 4 tensors differs in a sample of 1.59 %: second.weight\n"),
        ("org/resharded", 1, "same weights, other files: 4 tensors in a sample of 1.5"),
        ("org/bf16", 1, "no values were compared: 4 tensors of another dtype or shape\n"),
        ("org/copy", 0, "same bytes in 4 tensors"),
        ("org/resaved", 0, "same weights, other files: 4 tensors in a sample of 1.5"),
        ("org/tuned", 1, "all 4 tensors differ in a sample of 1.5"),
        ("org/one", 1, "1 of 4 tensors differs in a sample of 1.5"),
        ("org/other", 1, "no values were compared: 5 tensors of one model only\n"),
    ];
    for (other, code, first) in cases {
        let found = run(&hub, &["diff", "--values", "org/base", other]);
        assert_eq!(found.code, code, "{other}: {}", found.stdout);
        assert!(found.stdout.starts_with(first), "{other}: {}", found.stdout);
        let is_compared = !first.starts_with("no values");
        let has_note = found.stdout.ends_with("; values are not compared\n");
        assert_eq!(has_note, !is_compared, "{other}: {}", found.stdout);
    }
    let one = run(&hub, &["diff", "--values=all", "org/base", "org/one", "--json"]);
    let json: Value = serde_json::from_str(&one.stdout).unwrap();
    let values = &json["values"];
    assert_eq!((one.code, &values["same"], &values["identical"]), (1, &3.into(), &0.into()));
    let found = &values["differing"][0];
    assert_eq!(
        (&found["tensor"], &found["compared"], &found["differing"]),
        (&"bias".into(), &1_024.into(), &1.into())
    );
    assert!((found["largest"].as_f64().unwrap() - 1.0).abs() < 1e-6, "{found}");
    let all = run(&hub, &["diff", "--values=all", "org/base", "org/resaved"]).stdout;
    assert!(all.starts_with("same weights, other files: 4 tensors\n"), "{all}");
    let none = run(&hub, &["diff", "--values", "org/base", "org/none"]);
    assert_eq!(none.code, 3, "{}", none.stderr);
}

/// Transposed tensors and views are not ranges of a file: they are left out, unless their files have the same hash.
#[test]
fn tensors_that_are_not_ranges_are_left_out_of_a_comparison() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/pytorch");
    let file = |name: &str| File::from_bytes(fs::read(fixtures.join(name)).unwrap());
    let root = tempfile::tempdir().unwrap();
    let folder = |name: &str, file: &str| {
        let folder = root.path().join(name);
        fs::create_dir(&folder).unwrap();
        fs::copy(fixtures.join(file), folder.join("pytorch_model.bin")).unwrap();
        format!("{}/", folder.display())
    };
    let repo = |name: &str, name_of_file: &str| {
        Repo::new(name).file("pytorch_model.bin", file(name_of_file))
    };
    let hub = LocalHub::start([
        repo("org/overlap", "overlap.bin"),
        repo("org/copy", "overlap.bin"),
        repo("org/one", "unfolded.bin"),
    ])
    .unwrap();
    let [one, other] = [folder("one", "overlap.bin"), folder("other", "overlap.bin")];
    let cases = [
        ([&*one, &*other], 0, "1 of 3 tensors is the same; 2 left out\n"),
        (["org/overlap", "org/copy"], 0, "same bytes in 3 tensors\n"),
        (["org/overlap", "org/one"], 1, "no values were compared: 4 tensors of one model only\n"),
    ];
    for ([before, after], code, first) in cases {
        let found = run(&hub, &["diff", "--values=all", before, after]);
        assert_eq!(found.code, code, "{before} {after}: {}{}", found.stdout, found.stderr);
        assert!(found.stdout.starts_with(first), "{before} {after}: {}", found.stdout);
    }
}

/// Equal hashes need no data.
#[tokio::test]
async fn nothing_is_read_of_files_with_equal_hashes() {
    let hub = pairs();
    let client = client(&hub);
    let diff = client
        .model("org/base")
        .compare_values(&client.model("org/copy"), ValueCheck::All)
        .await
        .unwrap();
    assert_eq!((diff.identical, diff.same, diff.bytes_compared), (4, 0, 0));
    assert!(client.stats().bytes_read < 10_000);
}

/// The first line must not claim that models are the same if one of them lacks a tensor, or has another dtype.
#[test]
fn the_first_line_covers_all_tensors_and_the_document_agrees_with_the_status() {
    let file = |tensors: &[(&str, Dtype, &[usize])]| {
        File::from_bytes(crate::tensors::write_file(tensors))
            .hash(&hex(Sha256::digest(crate::tensors::write_file(tensors))))
    };
    let repo = |name: &str, tensors: &[(&str, Dtype, &[usize])]| {
        Repo::new(name).file("model.safetensors", file(tensors))
    };
    let (a, b) = (("a.x.w", Dtype::F32, &[4, 4][..]), ("a.y.w", Dtype::F32, &[4, 4][..]));
    let c = ("c", Dtype::F32, &[4][..]);
    let hub = LocalHub::start([
        repo("org/all", &[a, b, c]),
        repo("org/part", &[a]),
        repo("org/half", &[(a.0, Dtype::F16, a.2), (b.0, Dtype::F16, b.2), c]),
        repo("org/prefix", &[("z.x.w", a.1, a.2), ("z.y.w", b.1, b.2)]),
        repo("org/two", &[a, b]),
    ])
    .unwrap();
    let cases = [
        ("org/all", "org/part", "1 of 3 tensors is the same; 2 of one model only\n"),
        ("org/part", "org/all", "1 of 3 tensors is the same; 2 of one model only\n"),
        ("org/all", "org/half", "1 of 3 tensors is the same; 2 of another dtype or shape\n"),
        ("org/two", "org/prefix", "no values were compared: 4 tensors of one model only\n"),
    ];
    for (before, after, first) in cases {
        let found = run(&hub, &["diff", "--values", before, after]);
        assert_eq!(found.code, 1, "{after}: {}", found.stderr);
        assert!(found.stdout.starts_with(first), "{after}: {}", found.stdout);
        let json = run(&hub, &["diff", "--values", before, after, "--json"]);
        let json: Value = serde_json::from_str(&json.stdout).unwrap();
        assert_eq!(json["equal"], false);
    }
    let renamed = run(&hub, &["diff", "--values", "org/two", "org/prefix"]).stdout;
    let last = "2 renamed; 2 tensors unchanged; values are not compared";
    assert_eq!(renamed.lines().last(), Some(last), "{renamed}");
    let pairs = pairs();
    for (other, code) in [("org/one", 1), ("org/resaved", 0), ("org/copy", 0)] {
        let found = run(&pairs, &["diff", "--values", "--json", "org/base", other]);
        let json: Value = serde_json::from_str(&found.stdout).unwrap();
        assert_eq!((found.code, &json["equal"]), (code, &(code == 0).into()), "{other}");
    }
}

/// Nothing is read of a file that is on both sides.
#[test]
fn a_local_file_is_the_same_as_itself() {
    let folder = tempfile::tempdir().unwrap();
    let [one, other] = ["one", "other"].map(|name| folder.path().join(name));
    for folder in [&one, &other] {
        fs::create_dir(folder).unwrap();
        fs::write(folder.join("model.safetensors"), Values::new().file()).unwrap();
    }
    let hub = LocalHub::start([]).unwrap();
    let [one, other] = [one, other].map(|folder| format!("{}/", folder.display()));
    let (up, file) = (format!("{one}../one/"), format!("{one}model.safetensors"));
    for same in [&one, &up, &file] {
        let found = run(&hub, &["diff", "--values", &one, same]).stdout;
        assert!(found.starts_with("same bytes in 4 tensors\n"), "{same}: {found}");
    }
    let found = run(&hub, &["diff", "--values=all", &one, &other]).stdout;
    assert!(found.starts_with("same weights, other files: 4 tensors\n"), "{found}");
}

#[test]
fn a_single_tensor_differs() {
    let values = |value: f32| {
        let bytes = value.to_le_bytes();
        let view = safetensors::tensor::TensorView::new(Dtype::F32, vec![1], &bytes).unwrap();
        File::from_bytes(safetensors::serialize([("w", view)], None).unwrap())
    };
    let hub = LocalHub::start([
        Repo::new("org/1").file("model.safetensors", values(1.0)),
        Repo::new("org/2").file("model.safetensors", values(2.0)),
    ])
    .unwrap();
    let found = run(&hub, &["diff", "--values=all", "org/1", "org/2"]).stdout;
    assert!(found.starts_with("1 of 1 tensor differs: w\n"), "{found}");
}
