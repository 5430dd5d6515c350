//! `hf-meta metadata`: edits of local files, and their views.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use safetensors::SafeTensors;
use serde_json::Value;
use tempfile::TempDir;

use crate::command::{CommandOutput, hf_meta};
use crate::support::file_start;

/// A GIF image of one pixel.
const GIF: &[u8] = b"GIF89a\x01\0\x01\0\0\0\0,\0\0\0\0\x01\0\x01\0\0\x02\0;";

const TENSOR: &str = r#""w":{"dtype":"U8","shape":[4],"data_offsets":[0,4],"note":"kept"}"#;

/// A folder with files to edit.
struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a file with this metadata, as JSON, and some space in its header.
    fn weights(&self, name: &str, metadata: &str) -> PathBuf {
        let json = format!(r#"{{"__metadata__":{metadata},{TENSOR}}}{}"#, " ".repeat(20));
        let path = self.path(name);
        fs::write(&path, [&file_start(&json)[..], b"data"].concat()).unwrap();
        path
    }

    /// Runs `hf-meta metadata` in the folder.
    fn metadata(&self, args: &[&str]) -> CommandOutput {
        CommandOutput::new(self.command().arg("metadata").args(args))
    }

    fn command(&self) -> Command {
        let mut command = hf_meta("http://127.0.0.1:9");
        command.current_dir(self.0.path());
        command
    }

    /// Returns the names of all files, except those of shards.
    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.0.path()).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

/// Reads the metadata with the `safetensors` crate, and checks the data.
fn read(path: &Path) -> HashMap<String, String> {
    let file = fs::read(path).unwrap();
    let tensors = SafeTensors::deserialize(&file).unwrap();
    assert_eq!(tensors.tensor("w").unwrap().data(), b"data");
    assert!(String::from_utf8_lossy(&file).contains(TENSOR));
    let (_, header) = SafeTensors::read_metadata(&file).unwrap();
    header.metadata().clone().unwrap_or_default()
}

fn pairs<const N: usize>(entries: [(&str, &str); N]) -> HashMap<String, String> {
    entries.map(|(key, value)| (key.to_owned(), value.to_owned())).into()
}

#[test]
fn metadata_are_deleted_and_set_in_place() {
    let folder = Folder::new();
    let path = folder.weights("x.safetensors", r#"{"format":"pt","ss_a":"1","ss_b":"2"}"#);
    let size = fs::metadata(&path).unwrap().len();
    let deleted = folder.metadata(&["delete", "x.safetensors", "ss_*"]).data();
    assert_eq!(deleted, "x.safetensors: 2 deleted; in place, 42 B free in the header\n");
    assert_eq!(read(&path), pairs([("format", "pt")]));
    let set = folder.metadata(&["set", "x.safetensors", "t=a=b \u{1b}", "format=pt"]).data();
    assert_eq!(set, "x.safetensors: 1 added; in place, 25 B free in the header\n");
    assert_eq!(read(&path), pairs([("format", "pt"), ("t", "a=b \u{1b}")]));
    let same = folder.metadata(&["set", "x.safetensors", "format=pt"]).data();
    assert_eq!(same, "x.safetensors: no change\n");
    let all = folder.metadata(&["delete", "x.safetensors", "--all"]).data();
    assert!(all.starts_with("x.safetensors: 1 deleted; in place"), "{all}");
    assert_eq!(read(&path), pairs([("format", "pt")]));
    let format = folder.metadata(&["delete", "x.safetensors", "--all", "format"]);
    assert_eq!((format.code, read(&path)), (0, pairs([])));
    assert_eq!(fs::metadata(&path).unwrap().len(), size);
    assert_eq!(folder.names(), ["x.safetensors"]);
}

#[test]
fn a_longer_header_makes_a_new_file_with_room_for_the_next_edit() {
    let folder = Folder::new();
    let path = folder.weights("x.safetensors", r#"{"format":"pt"}"#);
    let long = format!("description={}", "x".repeat(100));
    let set = folder.metadata(&["set", "x.safetensors", &long, "--reserve", "1K"]).data();
    assert!(set.starts_with("x.safetensors: 1 added; new file, 1.0 kB free"), "{set}");
    assert_eq!(fs::read(&path).unwrap()[0] % 8, 0);
    let more = folder.metadata(&["set", "x.safetensors", &long.replace('x', "y")]).data();
    assert!(more.starts_with("x.safetensors: 1 changed; in place"), "{more}");
    assert_eq!(read(&path)["description"], "y".repeat(100));
    let room = folder.metadata(&["set", "x.safetensors", "format=pt", "--reserve", "64KiB"]).data();
    assert!(room.starts_with("x.safetensors: same metadata; new file, 65.5 kB free"), "{room}");
    assert_eq!(folder.names(), ["x.safetensors"]);
}

#[cfg(unix)]
#[test]
fn a_new_file_has_the_permissions_of_the_old_one() {
    use std::os::unix::fs::PermissionsExt;

    let folder = Folder::new();
    let path = folder.weights("x.safetensors", "{}");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    let set = folder.metadata(&["set", "x.safetensors", "format=pt", "--reserve", "1K"]);
    assert_eq!(set.code, 0, "{}", set.stderr);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
}

#[test]
fn all_shards_of_a_folder_are_edited_or_none() {
    let folder = Folder::new();
    let shards = ["a.safetensors", "b.safetensors"];
    let paths = shards.map(|name| folder.weights(name, r#"{"ss_x":"1"}"#));
    let json = fs::read_to_string(&paths[1]).unwrap().replace("\"w\"", "\"v\"");
    fs::write(&paths[1], &json).unwrap();
    let index = r#"{"weight_map":{"w":"a.safetensors","v":"b.safetensors"}}"#;
    fs::write(folder.path("model.safetensors.index.json"), index).unwrap();
    let set = folder.metadata(&["set", "./", "a=1"]).data();
    let lines: Vec<_> = set.lines().map(|line| line.split(';').next().unwrap()).collect();
    assert_eq!(lines, ["./a.safetensors: 1 added", "./b.safetensors: 1 added"]);
    let delete = folder.metadata(&["delete", "model.safetensors.index.json", "ss_*"]).data();
    assert_eq!(delete.lines().count(), 2, "{delete}");
    assert_eq!(read(&paths[0]), pairs([("a", "1")]));
    let before = fs::read(&paths[0]).unwrap();
    // A second link to the last shard.
    fs::hard_link(&paths[1], folder.path("link")).unwrap();
    let refused = folder.metadata(&["set", "./", "b=2"]);
    assert_eq!((refused.code, refused.stdout.as_str()), (4, ""));
    assert!(refused.stderr.contains("has 2 hard links"), "{}", refused.stderr);
    assert_eq!(fs::read(&paths[0]).unwrap(), before);
}

#[test]
fn metadata_are_copied_without_the_keys_of_the_data() {
    let folder = Folder::new();
    let from =
        r#"{"format":"tf","title":"T","modelspec.hash_sha256":"0x00","sshs_model_hash":"0"}"#;
    folder.weights("from.safetensors", from);
    let path = folder.weights("to.safetensors", r#"{"format":"pt","title":"old","kept":"yes"}"#);
    let copied = folder.metadata(&["copy", "./from.safetensors", "to.safetensors"]).data();
    assert!(copied.starts_with("to.safetensors: 1 changed; in place"), "{copied}");
    assert_eq!(read(&path), pairs([("format", "pt"), ("title", "T"), ("kept", "yes")]));
}

#[test]
fn a_dry_run_prints_the_change_and_writes_nothing() {
    let folder = Folder::new();
    let path = folder.weights("x.safetensors", r#"{"a":"1","b":"2","format":"pt"}"#);
    let before = fs::read(&path).unwrap();
    let edit = ["set", "x.safetensors", "a=\u{1b}[2J", "c=3", "-n"];
    let expected = "\
        x.safetensors\n\
        - a = 1\n\
        + a = \\u{1b}[2J\n\
        + c = 3\n\
        1 added, 1 changed; in place, 4 B free in the header; nothing was written\n";
    assert_eq!(folder.metadata(&edit).data(), expected);
    assert_eq!(fs::read(&path).unwrap(), before);
}

#[test]
fn values_are_read_from_files() {
    let folder = Folder::new();
    let path = folder.weights("x.safetensors", r#"{"format":"pt"}"#);
    fs::write(folder.path("text"), "two\nlines").unwrap();
    fs::write(folder.path("cover.png"), GIF).unwrap();
    let args = ["set", "x.safetensors", "d=@text", "e=@@x", "modelspec.thumbnail=@cover.png"];
    assert_eq!(folder.metadata(&args).code, 0);
    let metadata = read(&path);
    assert_eq!((&*metadata["d"], &*metadata["e"]), ("two\nlines", "@x"));
    let url = &metadata["modelspec.thumbnail"];
    assert!(url.starts_with("data:image/gif;base64,R0lGODlh"), "{url}");
}

#[test]
fn edits_that_cannot_be_made_are_refused() {
    let folder = Folder::new();
    let path = folder.weights("x.safetensors", "{}");
    let before = fs::read(&path).unwrap();
    fs::write(folder.path("text"), "x".repeat(1_000_001)).unwrap();
    fs::write(folder.path("bytes"), b"\xff").unwrap();
    fs::write(folder.path("bad.safetensors"), b"\x02\0\0\0\0\0\0\0{}more").unwrap();
    fs::write(folder.path("page.html"), "<html>").unwrap();
    fs::write(folder.path("x.gguf"), b"GGUF").unwrap();
    let cases: [(&[&str], i32, &str); 11] = [
        (&["set", "x.safetensors", "a"], 2, "`a` is not `KEY=VALUE`"),
        (&["set", "x.safetensors", "=a"], 2, "`=a` is not `KEY=VALUE`"),
        (&["set", "x.safetensors", "a=@text"], 2, "`text` has more than 1000000 bytes"),
        (&["set", "x.safetensors", "a=@bytes"], 2, "`bytes` is not UTF-8 text"),
        (&["set", "x.safetensors", "a=@none"], 4, "failed to read `none`"),
        (&["set", "x.safetensors", "modelspec.thumbnail=@page.html"], 2, "is not an image"),
        (&["set", "x.safetensors", "a=1", "--reserve", "200MB"], 2, "exceeds the limit"),
        (&["delete", "x.safetensors"], 2, "required"),
        (&["set", "bad.safetensors", "a=1"], 1, "is not a valid safetensors file"),
        (&["set", "x.gguf", "a=1"], 1, "is not a valid safetensors file"),
        (&["set", "none.safetensors", "a=1"], 4, "failed to read `none.safetensors`"),
    ];
    for (args, code, text) in cases {
        let ran = folder.metadata(args);
        assert_eq!((ran.code, ran.stdout.as_str()), (code, ""), "{args:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(text), "{args:?}: {}", ran.stderr);
    }
    assert_eq!(fs::read(&path).unwrap(), before);
    let none = folder.metadata(&["delete", "x.safetensors", "nothing*"]);
    assert_eq!((none.code, none.stdout.as_str()), (0, "x.safetensors: no change\n"));
    assert!(none.stderr.contains("no key matches `nothing*`"), "{}", none.stderr);
}

/// Loaders accept a file without metadata, but reject metadata without `format`.
#[test]
fn metadata_that_lose_their_format_are_noted() {
    let folder = Folder::new();
    folder.weights("x.safetensors", "null");
    let noted = folder.metadata(&["set", "x.safetensors", "a=1"]);
    assert_eq!(noted.code, 0);
    assert!(noted.stderr.contains("metadata without `format`"), "{}", noted.stderr);
    assert_eq!(folder.metadata(&["set", "x.safetensors", "b=1"]).stderr, "");
}

#[cfg(unix)]
#[test]
fn links_and_caches_are_refused() {
    let folder = Folder::new();
    let path = folder.weights("x.safetensors", "{}");
    let before = fs::read(&path).unwrap();
    std::os::unix::fs::symlink(&path, folder.path("link.safetensors")).unwrap();
    let link = folder.metadata(&["set", "link.safetensors", "a=1"]);
    assert!(link.code == 4 && link.stderr.contains("is a symbolic link to"), "{}", link.stderr);
    let blobs = folder.path("models--org--name/blobs");
    fs::create_dir_all(&blobs).unwrap();
    fs::copy(&path, blobs.join("abc")).unwrap();
    let blob = folder.metadata(&["set", "models--org--name/blobs/abc", "a=1"]);
    assert!(blob.code == 4 && blob.stderr.contains("download cache"), "{}", blob.stderr);
    assert_eq!(fs::read(&path).unwrap(), before);
}

/// A limit on the size of files has the same effect as a full disk.
#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_leaves_the_file_and_nothing_else() {
    let folder = Folder::new();
    let path = folder.weights("x.safetensors", r#"{"format":"pt","a":"1"}"#);
    let before = fs::read(&path).unwrap();
    for edit in ["delete x.safetensors a", "set x.safetensors b=2 --reserve 64K"] {
        let line = format!("trap '' XFSZ; ulimit -f 0; exec \"$0\" metadata {edit}");
        let mut command = Command::new("bash");
        command.args(["-c", &line, env!("CARGO_BIN_EXE_hf-meta")]).current_dir(folder.0.path());
        let ran = CommandOutput::new(command.env("HF_META_CACHE", "off"));
        assert!(ran.code == 4 && ran.stderr.contains("the file is unchanged"), "{}", ran.stderr);
        assert_eq!(fs::read(&path).unwrap(), before);
        assert_eq!(folder.names(), ["x.safetensors"]);
    }
}

/// The journal of an edit that was killed in the middle of the header.
#[cfg(unix)]
#[test]
fn an_interrupted_edit_is_completed_by_the_next_command() {
    use std::os::unix::fs::MetadataExt;

    let views: [&[&str]; 3] =
        [&["x.safetensors"], &["verify", "./"], &["metadata", "set", "x.safetensors", "format=pt"]];
    for args in views {
        let folder = Folder::new();
        let path = folder.weights("x.safetensors", r#"{"format":"pt","a":"1"}"#);
        let old = fs::read(&path).unwrap();
        let json = &old[8..old.len() - 4];
        let new = String::from_utf8(json.to_vec()).unwrap().replace(r#","a":"1""#, "") + "        ";
        let file = fs::metadata(&path).unwrap();
        let numbers = [file.len(), file.dev(), file.ino(), json.len() as u64];
        let numbers = numbers.map(u64::to_le_bytes).concat();
        let journal = [b"hf-meta edit 01\n", &numbers[..], json, new.as_bytes()].concat();
        fs::write(folder.path(".x.safetensors.hf-meta-journal"), journal).unwrap();
        // The first half is new.
        let torn = [&old[..8], &new.as_bytes()[..30], &json[30..], b"data"].concat();
        fs::write(&path, torn).unwrap();
        let ran = CommandOutput::new(folder.command().args(args));
        let note = "completed an interrupted edit of `";
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        assert!(ran.stderr.contains(note), "{args:?}: {}", ran.stderr);
        assert_eq!(read(&path), pairs([("format", "pt")]));
        assert_eq!(folder.names(), ["x.safetensors"]);
    }
}

/// Metadata of a `LoRA` with fields of the specification, and with what kohya-ss/sd-scripts writes.
fn lora() -> String {
    let tags: Vec<_> = (0..30).map(|tag| format!(r#""tag {tag}":{}"#, 30 - tag)).collect();
    let entries = [
        ("format", "pt".to_owned()),
        ("modelspec.resolution", "1024x768".to_owned()),
        ("modelspec.sai_model_spec", "1.0.1".to_owned()),
        ("modelspec.tags", "a, b".to_owned()),
        ("modelspec.thumbnail", hf_meta_format::metadata::Thumbnail::data_url(GIF).unwrap()),
        ("modelspec.title", "A \u{1b}[31mred\u{1b}[0m title".to_owned()),
        ("modelspec.unknown", "x".to_owned()),
        ("ss_adaptive_noise_scale", "None".to_owned()),
        ("ss_network_dim", "32".to_owned()),
        ("ss_tag_frequency", format!(r#"{{"1_x":{{{}}}}}"#, tags.join(","))),
    ];
    let entries = entries.map(|(key, value)| format!("\"{key}\":{}", Value::from(value)));
    format!("{{{}}}", entries.join(","))
}

#[test]
fn metadata_are_shown_in_groups() {
    let folder = Folder::new();
    folder.weights("x.safetensors", &lora());
    let shown = CommandOutput::new(folder.command().args(["./x.safetensors", "--metadata"])).data();
    let keys: Vec<_> = shown.lines().map(|line| line.split(" = ").next().unwrap()).collect();
    let expected = [
        "./x.safetensors",
        "ModelSpec",
        "modelspec.sai_model_spec",
        "modelspec.title",
        "modelspec.thumbnail",
        "modelspec.tags",
        "modelspec.resolution",
        "modelspec.unknown",
        "missing: modelspec.architecture, modelspec.implementation (required)",
        "training",
        "ss_network_dim",
        "ss_tag_frequency",
        "ss_adaptive_noise_scale",
        "other",
        "format",
    ];
    assert_eq!(keys, expected);
    assert!(shown.contains("title = A \\u{1b}[31mred\\u{1b}[0m title\n"), "{shown}");
    assert!(shown.contains("\"tag 29\":1}}\n") && shown.contains("base64,R0lG"), "{shown}");
}

#[test]
fn metadata_are_printed_as_json() {
    let folder = Folder::new();
    folder.weights("x.safetensors", &lora());
    let args = ["./x.safetensors", "--metadata", "--json"];
    let printed = CommandOutput::new(folder.command().args(args)).data();
    let json: Value = serde_json::from_str(&printed).unwrap();
    let file = &json["files"][0];
    assert_eq!((&json["source"], &file["path"]), (&args[0].into(), &"x.safetensors".into()));
    assert_eq!(file["metadata"]["modelspec.resolution"], "1024x768");
    let spec = serde_json::json!({
        "saiModelSpec": "1.0.1",
        "title": "A \u{1b}[31mred\u{1b}[0m title",
        "thumbnail": {"mediaType": "image/gif", "width": 1, "height": 1, "bytes": GIF.len()},
        "tags": ["a", "b"],
        "resolution": {"width": 1024, "height": 768},
        "missing": ["architecture", "implementation"],
    });
    assert_eq!(file["modelSpec"], spec);
    assert_eq!(file["thumbnail"], spec["thumbnail"]);
    let both = CommandOutput::new(folder.command().args(["./x.safetensors", "--json", "--tree"]));
    assert_eq!(both.code, 2);
}

#[test]
fn a_thumbnail_is_written_if_it_is_an_image() {
    let folder = Folder::new();
    folder.weights("x.safetensors", &lora());
    let write = |file: &str| {
        let args = [file, "--metadata", "--thumbnail", "cover.gif"];
        CommandOutput::new(folder.command().args(args))
    };
    assert_eq!(write("./x.safetensors").data(), "cover.gif: GIF, 1 × 1, 26 B\n");
    assert_eq!(fs::read(folder.path("cover.gif")).unwrap(), GIF);
    fs::remove_file(folder.path("cover.gif")).unwrap();
    for url in ["data:image/png;base64,PHN2Zy8+", "data:image/svg+xml,<svg/>", "x"] {
        folder.weights("y.safetensors", &format!(r#"{{"modelspec.thumbnail":"{url}"}}"#));
        let refused = write("./y.safetensors");
        assert_eq!((refused.code, refused.stdout.as_str()), (1, ""));
        assert!(refused.stderr.contains("no file has a thumbnail"), "{}", refused.stderr);
    }
    assert!(!folder.path("cover.gif").exists());
}

/// Hostile metadata are printed, escaped, and edited.
#[test]
fn many_keys_are_shown_and_deleted() {
    let folder = Folder::new();
    let entries = (0..9_999).map(|key| format!(r#""k\n\u001b[2J{key}":"\u202e""#));
    let bomb = "[".repeat(10_000);
    let entries: Vec<_> = entries.chain([format!(r#""ss_tag_frequency":"{bomb}""#)]).collect();
    let path = folder.weights("x.safetensors", &format!("{{{}}}", entries.join(",")));
    let shown = CommandOutput::new(folder.command().args(["./x.safetensors", "--metadata"])).data();
    assert!(!shown.contains(['\u{1b}', '\u{202e}']));
    // The source, two headings, and a line per entry.
    assert_eq!(shown.lines().count(), 10_003);
    let deleted = folder.metadata(&["delete", "x.safetensors", "k*", "ss_*"]).data();
    assert!(deleted.starts_with("x.safetensors: 10,000 deleted; in place"), "{deleted}");
    assert_eq!(read(&path), pairs([]));
}
