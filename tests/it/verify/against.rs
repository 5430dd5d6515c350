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
        "to replace them: hf download org/model config.json model.safetensors unet/model.safetensors --revision ",
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

/// A comparison of nothing must not look like one without differences.
#[test]
fn a_comparison_of_no_file_is_an_error() {
    let hidden = Repo::new("org/hidden").file(".gitattributes", File::from_bytes("hidden"));
    let (hub, folder) = (hub(), tempfile::tempdir().unwrap());
    let other_hub = LocalHub::start([hidden]).unwrap();
    let local = format!("{}/", text(folder.path()));
    write_files(folder.path());
    fs::write(folder.path().join("other.bin"), "mine").unwrap();
    let list = text(&folder.path().join("list.json"));
    fs::write(&list, r#"{"source":"org/model","files":[]}"#).unwrap();
    let other = format!("{local}other.bin");
    let list_of_folder = text(&folder.path().join("folder.json"));
    let cases: [(&LocalHub, &[&str], i32, &str); 7] = [
        (&hub, &[&local, "--against", "hf://org/model/none"], 1, "`org/model/none` not found"),
        (&hub, &[&local, "--against", "org/model:Q4_K_M"], 1, "`org/model/Q4_K_M` not found"),
        (&hub, &[&other, "--against", "org/model"], 1, "`org/model/other.bin` not found"),
        (&hub, &[&other, "--against", "hf://org/model/none.bin"], 1, "none.bin` not found"),
        (&hub, &["hf://org/model/none", "--manifest", &list_of_folder], 1, "none` not found"),
        (&other_hub, &[&local, "--against", "org/hidden"], 1, "no file to compare"),
        (&hub, &[&local, "--manifest", &list], 2, "list.json` lists no file to compare"),
    ];
    for (hub, args, code, message) in cases {
        let failed = run(hub, &[&["verify"], args].concat());
        assert_eq!((failed.code, &*failed.stdout), (code, ""), "{args:?}: {}", failed.stderr);
        assert!(failed.stderr.contains(message), "{args:?}: {}", failed.stderr);
    }
    assert!(!Path::new(&list_of_folder).exists());
    let json = run(&hub, &["verify", &local, "--json", "--against", "hf://org/model/none"]);
    let document: Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!((json.code, &document["error"]["code"]), (1, &"fileNotFound".into()));
    assert_eq!(document.get("equal"), None);
}

/// The path of a repository may be the file itself.
#[test]
fn a_file_is_compared_with_a_file() {
    let (hub, folder) = (hub(), tempfile::tempdir().unwrap());
    write_files(folder.path());
    let [local, unet] = ["", "unet/"].map(|below| format!("{}/{below}", text(folder.path())));
    fs::write(folder.path().join("renamed"), "other weights").unwrap();
    let [file, renamed] = [format!("{unet}model.safetensors"), format!("{local}renamed")];
    let against = ["--against", "hf://org/model/unet/model.safetensors"];
    for path in [&file, &unet, &renamed] {
        let same = run(&hub, &[&["verify", path], &against[..]].concat()).data();
        assert!(same.contains("same: 1 file, 13 B,") && !same.contains("extra"), "{same}");
    }
    let other = run(&hub, &[&["verify", &local], &against[..]].concat());
    assert!(other.stdout.contains("differs: model.safetensors: 11 bytes"), "{}", other.stdout);
    fs::remove_file(&file).unwrap();
    let missing = run(&hub, &[&["verify", &unet], &against[..]].concat());
    assert_eq!(missing.code, 1, "{}", missing.stderr);
    assert!(missing.stdout.contains("missing: model.safetensors"), "{}", missing.stdout);
}

/// An option that has no effect would make a wrong result look right.
#[test]
fn the_revision_selects_the_files_and_other_options_are_refused() {
    let (old, new) = ("1".repeat(40), "2".repeat(40));
    let file = |text: &'static str| {
        let hash = hex(Sha1::digest(format!("blob {}\0{text}", text.len())));
        File::from_bytes(text).hash(&hash)
    };
    let repo = Repo::new("org/versions").commit(&new).file("config.json", file("{}"));
    let repo = repo.commit(&old).file("config.json", file("[]")).revision("v1", &old);
    let hub = LocalHub::start([repo.revision("main", &new)]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let local = format!("{}/", text(folder.path()));
    fs::write(folder.path().join("config.json"), "[]").unwrap();
    let list = text(&folder.path().join(".list.json"));
    let verify = |args: &[&str]| run(&hub, &[&["verify", &local], args].concat());
    let same = verify(&["--against", "org/versions@main", "--revision", "v1"]).data();
    let line = format!("as in org/versions@v1 at commit {old}; 1 by Git hash\n");
    assert!(same.ends_with(&line), "{same}");
    assert_eq!(verify(&["--against", "org/versions"]).code, 1);
    assert_eq!(verify(&["--against", "org/versions@v1", "--revision", "main"]).code, 1);
    let unknown = verify(&["--against", "org/versions", "--revision", "nope"]);
    assert_eq!((unknown.code, &*unknown.stdout), (3, ""), "{}", unknown.stderr);
    run(&hub, &["verify", "org/versions", "-r", "v1", "--manifest", &list]).data();
    let with_list = verify(&["--manifest", &list, "--revision", "main"]);
    assert_eq!((with_list.code, &*with_list.stdout), (2, ""), "{}", with_list.stderr);
    for option in ["--path=unet", "--values", "--weights=gguf", "--engine=vllm", "--strict"] {
        for comparison in [["--against", "org/versions"], ["--manifest", &list]] {
            let refused = verify(&[&[option], &comparison[..]].concat());
            assert_eq!((refused.code, &*refused.stdout), (2, ""), "{option}");
            assert!(refused.stderr.contains("cannot be used with"), "{}", refused.stderr);
        }
    }
}

/// `hf download` takes the name of a repository, writes the path of a file below its folder, and keeps a file whose time
/// has not changed, unless it is forced.
#[test]
fn the_advice_is_a_command_that_replaces_the_files() {
    let (hub, folder) = (hub(), tempfile::tempdir().unwrap());
    write_files(folder.path());
    let root = text(folder.path());
    let [unet, file] = [format!("{root}/unet/"), format!("{root}/unet/model.safetensors")];
    let advice = |args: &[&str]| {
        let failed = run(&hub, &[&["verify"], args].concat());
        assert_eq!(failed.code, 1, "{}", failed.stderr);
        failed.stdout.lines().last().unwrap().to_owned()
    };
    let commit = run(&hub, &["verify", &format!("{root}/"), "--against", "org/model"]).data();
    let commit = commit.split("at commit ").nth(1).unwrap().split(';').next().unwrap().to_owned();
    fs::write(&file, "wrong").unwrap();
    let start = format!("hf download org/model unet/model.safetensors --revision {commit}");
    let forced = format!("to replace them: {start} --force-download --local-dir {root}");
    let of_file = "hf://org/model/unet/model.safetensors";
    assert_eq!(advice(&[&format!("{root}/"), "--against", "org/model"]), forced);
    assert_eq!(advice(&[&unet, "--against", "hf://org/model/unet"]), forced);
    assert_eq!(advice(&[&file, "--against", of_file]), forced);
    // A folder of another name is not where a download writes.
    fs::rename(&unet, format!("{root}/other dir")).unwrap();
    let copied = advice(&[&format!("{root}/other dir/"), "--against", "hf://org/model/unet"]);
    let text = "to replace them, copy them from the folder that this command prints:";
    assert_eq!(copied, format!("{text} {start}"));
    let missing = advice(&[&format!("{root}/"), "--against", "org/model"]);
    assert_eq!(missing, format!("to replace them: {start} --local-dir {root}"));
    let cached = format!("{root}/models--org--model/snapshots/{commit}");
    fs::create_dir_all(&cached).unwrap();
    write_files(Path::new(&cached));
    fs::write(format!("{cached}/config.json"), "[]").unwrap();
    let cached = advice(&[&cached, "--against", "org/model"]);
    assert!(cached.ends_with(&format!(" --force-download --cache-dir {root}")), "{cached}");
    let odd = format!("{root}/other dir/");
    assert!(advice(&[&odd, "--against", "org/model"]).ends_with(&format!("'{root}/other dir'")));
}

/// A folder of a cache may consist of links.
#[cfg(unix)]
#[test]
fn the_files_of_a_linked_folder_are_not_extra() {
    let (hub, folder) = (hub(), tempfile::tempdir().unwrap());
    let local = folder.path().join("model");
    fs::create_dir(&local).unwrap();
    write_files(&local);
    fs::rename(local.join("unet"), folder.path().join("elsewhere")).unwrap();
    let link = |target: &str, name: &str| std::os::unix::fs::symlink(target, local.join(name));
    link("../elsewhere", "unet").unwrap();
    let against =
        || run(&hub, &["verify", &format!("{}/", text(&local)), "--against", "org/model"]);
    let same = against().data();
    assert!(same.contains("same: 3 files") && !same.contains("extra"), "{same}");
    fs::write(folder.path().join("elsewhere/notes"), "mine").unwrap();
    // A link to a folder without listed files is not followed, and neither is a loop.
    link("..", "loop").unwrap();
    link("..", "unet/loop").unwrap();
    let extra = against().data();
    let lines: Vec<_> = extra.lines().filter(|line| line.starts_with("extra")).collect();
    assert_eq!(lines, ["extra: loop", "extra: unet/loop", "extra: unet/notes"]);
}

#[test]
fn a_folder_without_a_slash_is_explained_and_a_list_is_not_replaced() {
    let (hub, folder) = (hub(), tempfile::tempdir().unwrap());
    let local = folder.path().join("org/model");
    fs::create_dir_all(&local).unwrap();
    let run = |args: &[&str]| {
        let mut command = hf_meta(hub.endpoint());
        CommandOutput::new(command.current_dir(folder.path()).arg("verify").args(args))
    };
    let against = run(&["org/model", "--against", "org/model"]);
    assert_eq!(against.code, 2, "{}", against.stderr);
    assert!(
        against.stderr.contains("for the local file or folder, use ./org/model"),
        "{}",
        against.stderr
    );
    let list = folder.path().join("list.json");
    fs::write(&list, "mine").unwrap();
    let manifest = run(&["org/model", "--manifest", "list.json"]);
    assert_eq!((manifest.code, &*manifest.stdout), (2, ""), "{}", manifest.stderr);
    for text in ["`list.json` exists", "for the local file or folder, use ./org/model"] {
        assert!(manifest.stderr.contains(text), "{}", manifest.stderr);
    }
    assert_eq!(fs::read_to_string(&list).unwrap(), "mine");
    assert_eq!(hub.log().len(), 0);
}

#[test]
fn a_quiet_comparison_prints_only_differences() {
    let (hub, folder) = (hub(), tempfile::tempdir().unwrap());
    write_files(folder.path());
    let local = format!("{}/", text(folder.path()));
    let quiet = || run(&hub, &["verify", "-q", &local, "--against", "org/model"]);
    assert_eq!(quiet().data(), "");
    fs::write(folder.path().join("config.json"), "x").unwrap();
    let failed = quiet();
    assert_eq!(failed.code, 1);
    for text in
        ["config.json: 1 byte instead of 2", "1 differing, 0 missing, 0 extra; same: 2 files, 24 B"]
    {
        assert!(failed.stdout.contains(text), "{}", failed.stdout);
    }
}
