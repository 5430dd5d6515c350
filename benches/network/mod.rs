//! Models of all sizes for the local Hub.

#[path = "../../examples/local_hub/folder.rs"]
mod folder;
#[path = "../../examples/make_fixtures/models/mod.rs"]
mod models;
#[path = "../../examples/local_hub/tls.rs"]
pub(crate) mod tls;

use std::error::Error;
use std::time::Duration;

use folder::load_folder;
use hf_meta_testing::{File, Repo};
use models::Model;

/// Returns repositories by name, from the fixtures and from generated models that are too large for fixtures.
///
/// # Errors
///
/// Returns an error if the fixtures cannot be read, or a name is unknown.
pub(crate) fn repos(names: &[String]) -> Result<Vec<Repo>, Box<dyn Error>> {
    let fixtures = load_folder(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures").as_ref())?;
    let large = models::large();
    let find = |name: &String| {
        if let Some(repo) = fixtures.iter().find(|repo| repo.id() == name) {
            return Ok(repo.clone());
        }
        let model = large.iter().find(|model| model.repo == name);
        Ok(make(model.ok_or_else(|| format!("no model `{name}`"))?)?)
    };
    names.iter().map(find).collect()
}

fn make(model: &Model) -> serde_json::Result<Repo> {
    let repo = Repo::new(model.repo).commit(&model.commit());
    let files = model.lay_out()?.into_iter();
    Ok(files.fold(repo, |repo, file| repo.file(&file.path, File::padded(file.head, file.size))))
}

/// Parses a number of milliseconds, with or without the suffix `ms`.
///
/// # Errors
///
/// Returns an error if it is not a number.
pub(crate) fn milliseconds(text: &str) -> Result<Duration, std::num::ParseIntError> {
    text.strip_suffix("ms").unwrap_or(text).parse().map(Duration::from_millis)
}
