//! Edits of metadata: at random, killed at many points, with hashes, and of large headers and files.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use hf_meta_edit::{EditProgress, FileEdit};
use hf_meta_format::formats::safetensors::MetadataEdit;
use safetensors::SafeTensors;
use serde_json::Value;

use crate::command::{CommandOutput, hf_meta};
use crate::support::file_start;

const TENSOR: &str = r#""w":{"dtype":"U8","shape":[4],"data_offsets":[0,4],"note":"kept"}"#;

/// Writes a file with these metadata and 20 free bytes in its header.
fn write(path: &Path, metadata: &BTreeMap<String, String>) {
    let metadata = serde_json::to_string(metadata).unwrap();
    let json = format!(r#"{{"__metadata__":{metadata},{TENSOR}}}{}"#, " ".repeat(20));
    fs::write(path, [&file_start(&json)[..], b"data"].concat()).unwrap();
}

/// Reads the metadata with the `safetensors` crate, and checks the data and the entry of the tensor.
fn read(path: &Path) -> BTreeMap<String, String> {
    let file = fs::read(path).unwrap();
    let tensors = SafeTensors::deserialize(&file).unwrap();
    assert_eq!(tensors.tensor("w").unwrap().data(), b"data");
    assert!(file.windows(TENSOR.len()).any(|part| part == TENSOR.as_bytes()));
    let (_, header) = SafeTensors::read_metadata(&file).unwrap();
    header.metadata().clone().unwrap_or_else(HashMap::new).into_iter().collect()
}

fn edit(path: &Path, edits: &[MetadataEdit], reserve: Option<usize>) -> bool {
    let edit = FileEdit::new(path, edits, reserve).unwrap();
    let is_new_file = edit.is_new_file();
    edit.apply(&EditProgress::default()).unwrap();
    is_new_file
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Numbers that look random and are the same in every run (Knuth, MMIX).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % end
    }

    fn text(&mut self, max: usize) -> String {
        const PARTS: [&str; 12] =
            ["a", "ss_", "x y", "\"", "\\", "\n", "\u{1b}[2J", "\u{202e}", "ü", "模型", "{}", "*"];
        (0..self.below(max)).map(|_| PARTS[self.below(PARTS.len())]).collect()
    }
}

/// Reading a file back gives the edits that were applied to a map.
#[test]
fn a_thousand_random_edits_read_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.safetensors");
    let (mut numbers, mut expected) = (Numbers(72), BTreeMap::new());
    write(&path, &expected);
    let mut new_files = 0;
    for number in 0..1_000 {
        let change = match numbers.below(20) {
            0 => MetadataEdit::DeleteAll,
            1 => MetadataEdit::Delete(format!("{}*", numbers.text(3))),
            2..7 => MetadataEdit::Delete(numbers.text(3)),
            _ => MetadataEdit::Set { key: numbers.text(3), value: numbers.text(60) },
        };
        match &change {
            MetadataEdit::Set { key, value } => {
                expected.insert(key.clone(), value.clone());
            }
            delete => expected.retain(|key, _| !delete.deletes(key)),
        }
        let reserve = (numbers.below(50) == 0).then(|| numbers.below(4_000));
        new_files += usize::from(edit(&path, &[change], reserve));
        assert_eq!(read(&path), expected, "edit {number}");
    }
    assert!((5..500).contains(&new_files), "{new_files} new files");
    assert_eq!(names(folder.path()), ["x.safetensors"]);
}

/// Runs a command and kills it after some time, unless it ends before.
fn run_at_most(mut command: Command, time: Duration) {
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let end = Instant::now() + time;
    while Instant::now() < end && child.try_wait().unwrap().is_none() {
        std::thread::yield_now();
    }
    // An error means that it has ended.
    let _ = child.kill();
    child.wait().unwrap();
}

/// Kills the command at 200 points, spread over the time of an edit in place and of an edit that writes a new file.
/// Wherever it ends, the next command leaves the old or the new file, and nothing else.
#[test]
fn a_killed_edit_leaves_the_old_or_the_new_file() {
    const POINTS: u32 = 100;

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.safetensors");
    // A long header takes longer to write.
    let metadata = [("format", "pt".to_owned()), ("long", "v".repeat(100_000))];
    write(&path, &metadata.map(|(key, value)| (key.to_owned(), value)).into());
    let old = fs::read(&path).unwrap();
    let command = |args: &[&str]| {
        let mut command = hf_meta("http://127.0.0.1:9");
        command.current_dir(folder.path()).args(args);
        command
    };
    for options in [&[][..], &["--reserve", "200K"]] {
        let args = [&["metadata", "delete", "x.safetensors", "long"], options].concat();
        fs::write(&path, &old).unwrap();
        let started = Instant::now();
        assert_eq!(CommandOutput::new(&mut command(&args)).code, 0);
        let (time, new) = (started.elapsed(), fs::read(&path).unwrap());
        let mut unchanged = 0;
        for point in 0..POINTS {
            fs::write(&path, &old).unwrap();
            run_at_most(command(&args), time * point / POINTS);
            let next =
                CommandOutput::new(&mut command(&["./x.safetensors", "--metadata", "--json"]));
            assert_eq!(next.code, 0, "{options:?}, point {point}: {}", next.stderr);
            let found = fs::read(&path).unwrap();
            assert!(found == old || found == new, "{options:?}, point {point}: {}", next.stderr);
            assert_eq!(names(folder.path()), ["x.safetensors"], "{options:?}, point {point}");
            unchanged += u32::from(found == old);
        }
        // At the first points, no process has started to write.
        assert!(unchanged > 0);
    }
}

/// The data of a large file are not touched: it has no blocks before and after.
#[cfg(target_os = "linux")]
#[test]
fn ten_gigabytes_are_edited_without_writing_them() {
    use std::os::unix::fs::MetadataExt;

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.safetensors");
    let length = 10_000_000_000_u64;
    let tensor = format!(r#""w":{{"dtype":"U8","shape":[{length}],"data_offsets":[0,{length}]}}"#);
    let json = format!(r#"{{"__metadata__":{{"format":"pt","ss_tag":"a"}},{tensor}}}"#);
    let start = file_start(&json);
    fs::write(&path, &start).unwrap();
    let file = File::options().write(true).open(&path).unwrap();
    file.set_len(start.len() as u64 + length).unwrap();
    let before = file.metadata().unwrap();
    assert!(!edit(&path, &[MetadataEdit::Delete("ss_*".to_owned())], None));
    let after = fs::metadata(&path).unwrap();
    assert_eq!((after.len(), after.ino()), (before.len(), before.ino()));
    // Blocks of 512 bytes.
    assert!(after.blocks() < 200, "{} blocks", after.blocks());
}

#[test]
fn a_new_file_needs_the_stated_hash_of_its_data() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.safetensors");
    // `printf data | sha256sum`, in capitals.
    let hash = "3A6EB0790F39AC87C94F3856B2DD2C5D110E6811602261A9A923D3BB23ADC8B7";
    let long = format!("a={}", "x".repeat(100));
    let set = |entries: &[&str]| {
        let mut command = hf_meta("http://127.0.0.1:9");
        let args = [&["metadata", "set", "x.safetensors"], entries].concat();
        CommandOutput::new(command.current_dir(folder.path()).args(args))
    };
    let metadata = |hash: &str| {
        write(&path, &[("modelspec.hash_sha256".to_owned(), hash.to_owned())].into());
    };
    metadata(&format!("0x{hash}"));
    assert_eq!(set(&[&long]).code, 0);
    assert_eq!(read(&path)["a"].len(), 100);
    metadata(&format!("0x{}", "0".repeat(64)));
    let before = fs::read(&path).unwrap();
    let refused = set(&[&long]);
    assert_eq!((refused.code, refused.stdout.as_str()), (1, ""));
    let text = format!(
        "do not have the SHA-256 in `modelspec.hash_sha256`, but 0x{}",
        hash.to_lowercase()
    );
    assert!(refused.stderr.contains(&text), "{}", refused.stderr);
    assert_eq!(
        (fs::read(&path).unwrap(), names(folder.path())),
        (before, vec!["x.safetensors".to_owned()])
    );
    // Data that are not read are not checked, and a hash can be corrected.
    assert_eq!(set(&["a=1"]).code, 0);
    assert_eq!(set(&[&format!("modelspec.hash_sha256=0x{hash}"), &long]).code, 0);
    // A text that is not a hash is not compared.
    metadata("abc");
    assert_eq!(set(&[&long]).code, 0);
}

/// A step per pair of keys would take a minute.
#[test]
fn a_hundred_thousand_keys_are_shown_and_edited() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.safetensors");
    let key = |number: usize| format!("key\n\u{1b}[2J{number}");
    let metadata: BTreeMap<_, _> =
        (0..100_000).map(|number| (key(number), "\u{202e}".to_owned())).collect();
    write(&path, &metadata);
    let run = |args: &[&str]| {
        CommandOutput::new(hf_meta("http://127.0.0.1:9").current_dir(folder.path()).args(args))
    };
    let shown = run(&["./x.safetensors", "--metadata"]).data();
    assert!(!shown.contains(['\u{1b}', '\u{202e}']));
    assert_eq!(shown.lines().count(), 100_001);
    let json: Value =
        serde_json::from_str(&run(&["./x.safetensors", "--metadata", "--json"]).data()).unwrap();
    assert_eq!(json["files"][0]["metadata"].as_object().unwrap().len(), 100_000);
    assert_eq!(run(&["verify", "./x.safetensors"]).code, 0);
    let set = |number| MetadataEdit::Set { key: key(number), value: "new".to_owned() };
    assert!(!edit(&path, &(0..100_000).map(set).collect::<Vec<_>>(), None));
    assert!(read(&path).values().all(|value| value == "new"));
    let delete = |number| MetadataEdit::Delete(key(number));
    let deletes: Vec<_> = (0..99_999).map(delete).collect();
    let plan = FileEdit::new(&path, &deletes, None).unwrap();
    assert!(hf_meta_edit::unmatched_patterns(&deletes, [plan.changes()]).is_empty());
    plan.apply(&EditProgress::default()).unwrap();
    assert_eq!(read(&path).into_keys().collect::<Vec<_>>(), [key(99_999)]);
}
