//! The modules of sentence-transformers.
//!
//! Add a test here if the repository has a `modules.json`.

use super::{checked, verify};
use crate::call::layouts::repo;
use crate::hub::{File, LocalHub};
use crate::support::modules_json;

#[tokio::test]
async fn all_modules_of_a_sentence_transformers_model_are_checked() {
    let files = ["modules.json", "model.safetensors", "2_Dense/model.safetensors"];
    let checkpoint = ["checkpoint-5/modules.json", "checkpoint-5/model.safetensors"];
    let modules = modules_json(&[("", "Transformer"), ("2_Dense", "Dense")]);
    let repo = repo("org/st", &[&files[..], &checkpoint].concat())
        .file("modules.json", modules)
        .file("config.json", File::from_bytes("{}"));
    let hub = LocalHub::start([repo]).unwrap();
    let (mut sets, others) = checked(&verify(&hub, "org/st", false).await);
    // The Dense module has no configuration.
    assert_eq!(sets.remove(0), "model.safetensors \"missingConfig\"");
    assert_eq!(sets, ["2_Dense/model.safetensors"]);
    assert_eq!(others, ["checkpoint-5/model.safetensors"]);
}

/// A copy of the weights and their configuration alone is for other loaders, which need no configuration of pooling.
#[tokio::test]
async fn a_module_without_weights_is_missing_only_in_a_whole_repository() {
    let modules = [("", "Transformer"), ("1_Pooling", "Pooling")];
    for (other, expected) in [
        ("README.md", "model.safetensors"),
        ("tokenizer_config.json", "model.safetensors \"missingConfig\""),
    ] {
        let repo = repo("org/st", &["modules.json", "model.safetensors"])
            .file("modules.json", modules_json(&modules))
            .file("config.json", File::from_bytes("{}"))
            .file(other, File::from_bytes("{}"));
        let hub = LocalHub::start([repo]).unwrap();
        assert_eq!(checked(&verify(&hub, "org/st", false).await).0, [expected], "{other}");
    }
}
