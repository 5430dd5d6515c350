//! A gallery: a badge for each model, in a folder with a page.

use std::fmt::Write;
use std::path::Path;
use std::{fs, io};

use hf_meta::{Client, RepoId};
use hf_meta_badge::{Badge, BadgeOptions, Metric};

/// Writes the badges and the page. A model without a count has a badge with the reason.
pub(crate) async fn write(client: &Client, repos: &[RepoId], folder: &Path) -> io::Result<()> {
    let mut page = String::from("<!DOCTYPE html>\n<title>Models</title>\n");
    for repo in repos {
        let badge = match client.model(repo).count().await {
            Ok(report) => Badge::from_report(&report, Metric::Params),
            Err(error) => Badge::from_error(&error, Metric::Params),
        };
        // A name holds letters, digits, `-`, `_`, `.` and `/` only.
        let file = format!("{}.svg", repo.to_string().replace('/', "--"));
        fs::write(folder.join(&file), badge.svg(&BadgeOptions::default()))?;
        let _ = writeln!(page, "<p><img src=\"{file}\" alt=\"{repo}\"> {repo}</p>");
    }
    fs::write(folder.join("index.html"), page)
}
