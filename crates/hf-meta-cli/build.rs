//! Sets `HF_META_COMMIT` to the commit of a clone, for `hf-meta --version`. Releases set the variable themselves.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-env-changed=HF_META_COMMIT");
    // An unpacked package has no repository, but may be in a folder of another one.
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    if std::env::var_os("HF_META_COMMIT").is_some() || !root.join(".git").exists() {
        return;
    }
    let args = ["rev-parse", "HEAD", "--git-path", "logs/HEAD"];
    let Ok(output) = Command::new("git").args(args).current_dir(&root).output() else { return };
    if !output.status.success() {
        return;
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let mut lines = text.lines();
    if let (Some(commit), Some(log)) = (lines.next(), lines.next()) {
        println!("cargo::rustc-env=HF_META_COMMIT={commit}");
        println!("cargo::rerun-if-changed={}", root.join(log).display());
    }
}
