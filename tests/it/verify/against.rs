//! `verify --against` and `--manifest`: local files, compared with the list of the Hub.

use std::fs;
use std::path::Path;

use serde_json::Value;
use sha1::Sha1;
use sha2::{Digest, Sha256};

use crate::command::{CommandOutput, hf_meta, run};
use crate::hub::{Fault, File, LocalHub, Repo};
use crate::support::hex;

/// The files of the repository.
const FILES: [(&str, &str); 4] = [
    ("model.safetensors", "the weights"),
    ("unet/model.safetensors", "other weights"),
    ("config.json", "{}"),
    (".gitattributes", "hidden"),
];

/// A Hub with real hashes.
fn hub() -> LocalHub {
    let repo = FILES.iter().fold(Repo::new("org/model"), |repo, (path, text)| {
        let hash = if path.ends_with(".safetensors") {
            hex(Sha256::digest(text))
        } else {
            hex(Sha1::digest(format!("blob {}\0{text}", text.len())))
        };
        repo.file(path, File::from_bytes(*text).hash(&hash))
    });
    LocalHub::start([repo]).unwrap()
}

/// Writes all files except the hidden one.
fn write_files(folder: &Path) {
    fs::create_dir(folder.join("unet")).unwrap();
    for (path, text) in &FILES[..3] {
        fs::write(folder.join(path), text).unwrap();
    }
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

#[test]
fn files_are_compared_by_size_and_hash() {
    let (hub, folder) = (hub(), tempfile::tempdir().unwrap());
    write_files(folder.path());
    let local = format!("{}/", text(folder.path()));
    let against = |extra: &[&str]| {
        run(&hub, &[&["verify", &local, "--against", "org/model"], extra].concat())
    };
    let same = against(&[]).data();
    let line = same.lines().last().unwrap();
    assert!(line.starts_with("same: 3 files, 26 B, as in org/model at commit "), "{same}");
    assert!(line.ends_with("; 2 by SHA-256, 1 by Git hash"), "{same}");
    // A part of the repository, and a single file.
    let unet = format!("{local}unet/");
    assert_eq!(run(&hub, &["verify", &unet, "--against", "hf://org/model/unet"]).code, 0);
    let file = format!("{local}model.safetensors");
    assert_eq!(run(&hub, &["verify", &file, "--against", "org/model"]).code, 0);
    // The same size with one other bit, another size, a missing and an additional file.
    fs::write(folder.path().join("model.safetensors"), "the weighus").unwrap();
    fs::write(folder.path().join("config.json"), "{ }").unwrap();
    fs::remove_file(folder.path().join("unet/model.safetensors")).unwrap();
    fs::write(folder.path().join("notes.txt"), "mine").unwrap();
    let failed = against(&[]);
    assert_eq!((failed.code, &*failed.stderr), (1, ""));
    let expected = [
        &format!("differs: model.safetensors: SHA-256 {}", hex(Sha256::digest("the weighus")))[..],
        "differs: config.json: 3 bytes instead of 2",
        "missing: unet/model.safetensors",
        "extra: notes.txt",
        "not the same as org/model at commit ",
        "to replace them: hf download org/model --revision ",
    ];
    for line in expected {
        assert!(failed.stdout.contains(line), "{line}\n{}", failed.stdout);
    }
    let json: Value = serde_json::from_str(&against(&["--json"]).stdout).unwrap();
    assert_eq!((&json["equal"], &json["files"]), (&false.into(), &0.into()));
    assert_eq!(json["missing"], serde_json::json!(["unet/model.safetensors"]));
    assert_eq!(json["extra"], serde_json::json!(["notes.txt"]));
    assert_eq!(json["differing"].as_array().map(Vec::len), Some(2));
}

#[test]
fn a_list_is_written_and_read_without_network() {
    let (hub, folder) = (hub(), tempfile::tempdir().unwrap());
    let list = text(&folder.path().join("list.json"));
    let local = folder.path().join("model");
    fs::create_dir(&local).unwrap();
    write_files(&local);
    let written = run(&hub, &["verify", "org/model", "--manifest", &list]).data();
    assert_eq!(written, format!("{list}: 4 files\n"));
    let offline = |path: &Path| {
        let mut command = hf_meta("http://127.0.0.1:9");
        let local = format!("{}/", text(path));
        CommandOutput::new(command.args(["verify", &local, "--manifest", &list, "--offline"]))
    };
    assert!(offline(&local).data().contains("same: 3 files"));
    // A list of another program may have hashes in capitals.
    let text = fs::read_to_string(&list).unwrap();
    let capitals = FILES.iter().fold(text.clone(), |text, (path, content)| {
        let hashes = [
            hex(Sha256::digest(content)),
            hex(Sha1::digest(format!("blob {}\0{content}", content.len()))),
        ];
        assert!(hashes.iter().any(|hash| text.contains(hash)), "{path}");
        hashes.iter().fold(text, |text, hash| text.replace(hash, &hash.to_uppercase()))
    });
    assert_ne!(capitals, text);
    fs::write(&list, capitals).unwrap();
    assert!(offline(&local).data().contains("same: 3 files"));
    fs::write(&list, text).unwrap();
    fs::write(local.join("config.json"), "[]").unwrap();
    let failed = offline(&local);
    assert_eq!(failed.code, 1);
    assert!(failed.stdout.contains("differs: config.json: Git hash"), "{}", failed.stdout);
    for invalid in ["", "[]", r#"{"source":"x","files":[{"path":"../x","size":1}]}"#] {
        fs::write(&list, invalid).unwrap();
        let failed = offline(&local);
        assert_eq!(failed.code, 2, "{invalid}: {}", failed.stderr);
        assert!(failed.stderr.contains("is not a list of files"), "{}", failed.stderr);
    }
}

#[test]
fn failures_have_their_exit_code() {
    let (hub, folder) = (hub(), tempfile::tempdir().unwrap());
    let local = format!("{}/", text(folder.path()));
    let none = format!("{local}none/");
    let cases: [(&[&str], i32, &str); 6] = [
        (&["verify", "org/model", "--against", "org/model"], 2, "requires a local folder"),
        (&["verify", &local, &local, "--against", "org/model"], 2, "a single repository"),
        (&["verify", &local, "--against", "org/none"], 3, "not found"),
        (&["verify", &local, "--against", &local], 2, "has no hashes"),
        (&["verify", &none, "--against", "org/model"], 4, "failed to read"),
        (&["verify", &local, "--manifest", &none], 4, "failed to read"),
    ];
    for (args, code, message) in cases {
        let failed = run(&hub, args);
        assert_eq!((failed.code, &*failed.stdout), (code, ""), "{args:?}: {}", failed.stderr);
        assert!(failed.stderr.contains(message), "{args:?}: {}", failed.stderr);
    }
    hub.inject(|_, _| Some(Fault::Status(500, vec![])));
    let failed = run(&hub, &["verify", &local, "--against", "org/model", "--retries", "0"]);
    assert_eq!(failed.code, 3, "{}", failed.stderr);
}
