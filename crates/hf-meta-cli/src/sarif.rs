//! The findings of `verify` as SARIF 2.1.0.

use std::collections::BTreeMap;

use hf_meta::{Endpoint, Error, ErrorKind, RepoPath, VerifyReport};
use hf_meta_count::results::Finding;
use hf_meta_count::results::VerifiedSet;
use hf_meta_format::formats::Format;
use hf_meta_format::formats::gguf::Gguf;
use serde_json::{Value, json};

use super::error_report::severity_label;
use super::exit::ExitStatus;
use super::output::message_with_causes;
use super::repos::RepoArg;

/// The address of the documentation.
const PAGES: &str = concat!(env!("CARGO_PKG_REPOSITORY"), "/blob/main/src/docs");

/// The findings as SARIF 2.1.0, which code hosts show as annotations: the results, their kinds by name, and the sets that
/// were not compared with a configuration.
#[derive(Debug, Default)]
pub(crate) struct SarifLog {
    results: Vec<Value>,
    notifications: Vec<Value>,
    rules: BTreeMap<String, Value>,
    /// True if something could not be read.
    is_incomplete: bool,
}

impl SarifLog {
    /// Adds the findings of a report.
    pub(crate) fn add_report(
        &mut self,
        source: &RepoArg,
        endpoint: &Endpoint,
        report: &VerifyReport,
    ) {
        for set in &report.sets {
            if let Some(text) = not_compared(set) {
                let file = existing(set.path.as_str(), report);
                let mut notification = result("note", &text, &location(source, file, endpoint));
                notification["properties"] = json!({ "configCheck": set.config_check });
                self.notifications.push(notification);
            }
            for finding in &set.findings {
                let (_, level) = severity_label(finding.severity());
                let (kind, file) = kind_and_file(finding);
                let file = existing(file.as_deref().unwrap_or(set.path.as_str()), report);
                let location = location(source, file, endpoint);
                let found = result(level, &finding.to_string(), &location);
                if matches!(finding, Finding::Unreadable { .. }) {
                    self.add_failure(found.clone(), &kind);
                }
                self.add(found, &kind, finding.description(), "validity.md#findings");
                if let (Some(help), Some(rule)) = (finding.help(), self.rules.get_mut(&kind)) {
                    rule["help"] = json!({ "text": help });
                }
            }
        }
    }

    /// Adds a source that could not be read.
    pub(crate) fn add_error(&mut self, source: &RepoArg, endpoint: &Endpoint, error: &Error) {
        let location = location(source, None, endpoint);
        let found = result("error", &message_with_causes(error), &location);
        // A file or folder that does not exist was not read, either.
        let is_missing = error.kind() == ErrorKind::FileNotFound;
        if is_missing || ExitStatus::from(error) != ExitStatus::CheckFailed {
            self.add_failure(found.clone(), error.code());
        }
        self.add(found, error.code(), error.kind().description(), "errors.md");
    }

    /// Adds the notification that something could not be read.
    fn add_failure(&mut self, mut notification: Value, code: &str) {
        notification["descriptor"] = json!({ "id": code });
        self.notifications.push(notification);
        self.is_incomplete = true;
    }

    /// Adds a result, and the description of its kind with the page about it.
    fn add(&mut self, mut found: Value, kind: &str, description: &str, page: &str) {
        let rule = json!({
            "id": kind,
            "shortDescription": { "text": description },
            "helpUri": format!("{PAGES}/{page}"),
        });
        self.rules.insert(kind.to_owned(), rule);
        found["ruleId"] = kind.into();
        self.results.push(found);
    }

    /// Returns the document.
    pub(crate) fn finish(self) -> Value {
        let driver = json!({
            "name": "hf-meta",
            "semanticVersion": env!("CARGO_PKG_VERSION"),
            "rules": self.rules.into_values().collect::<Vec<_>>(),
        });
        json!({
            "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
            "version": "2.1.0",
            "runs": [{
                "tool": { "driver": driver },
                "invocations": [{
                    "executionSuccessful": !self.is_incomplete,
                    "toolExecutionNotifications": self.notifications,
                }],
                "results": self.results,
            }],
        })
    }
}

/// Returns a result, or a notification.
fn result(level: &str, message: &str, location: &Value) -> Value {
    json!({
        "level": level,
        "message": { "text": message },
        // Weights have no lines, but code hosts show only results with a region.
        "locations": [{
            "physicalLocation": { "artifactLocation": location, "region": { "startLine": 1 } },
        }],
    })
}

/// Returns the path of a file, or of the first file of shards without an index.
fn existing<'a>(path: &'a str, report: &'a VerifyReport) -> Option<&'a str> {
    let Some((start, _)) = path.split_once('*') else { return Some(path) };
    report.filepaths.iter().map(RepoPath::as_str).find(|path| path.starts_with(start))
}

/// Returns the address of a file. Its description is the path without the escapes of a URI, for annotations of a log.
fn location(source: &RepoArg, file: Option<&str>, endpoint: &Endpoint) -> Value {
    let uri = source.file_url(file, endpoint);
    let path = source.file_path(file).unwrap_or_else(|| uri.clone());
    json!({ "uri": uri, "description": { "text": path } })
}

/// Returns the kind of a finding and the file it is about; `None` if it does not exist, or if the finding is about a set.
pub(crate) fn kind_and_file(finding: &Finding) -> (String, Option<String>) {
    let fields = serde_json::to_value(finding).unwrap_or_default();
    let text = |name: &str| fields.get(name).and_then(Value::as_str).map(str::to_owned);
    let names: &[_] = match finding {
        Finding::MissingShard { .. } => &[],
        Finding::WrongShard { .. } => &["found"],
        _ => &["file", "shard", "second"],
    };
    (text("kind").unwrap_or_default(), names.iter().find_map(|name| text(name)))
}

/// Returns a sentence about why the tensors were not compared with `config.json`, or with the keys of a GGUF file.
pub(crate) fn not_compared(set: &VerifiedSet) -> Option<String> {
    let is_gguf = set.path.as_str().ends_with(Gguf.extension());
    let file = if is_gguf { "the metadata" } else { "config.json" };
    Some(format!("{file} was not compared: {}", set.config_check.reason.as_ref()?))
}
