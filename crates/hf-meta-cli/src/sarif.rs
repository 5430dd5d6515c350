//! Converts findings to SARIF 2.1.0, which code hosts show as annotations.

use std::collections::BTreeSet;

use hf_meta::report::{Finding, Severity};
use hf_meta::{Endpoint, Error, VerifyReport};
use serde_json::{Value, json};

use super::error_report::causes;
use super::repo_arg::RepoArg;

/// The results of a run and the kinds of findings in them.
#[derive(Debug, Default)]
pub(crate) struct SarifLog {
    results: Vec<Value>,
    rules: BTreeSet<String>,
}

impl SarifLog {
    /// Adds the findings of a report.
    pub(crate) fn add_report(
        &mut self,
        source: &RepoArg,
        endpoint: &Endpoint,
        report: &VerifyReport,
    ) {
        for finding in &report.findings {
            let level = match finding.severity() {
                Severity::Error => "error",
                Severity::Warning => "warning",
                Severity::Note => "note",
            };
            let (kind, file) = kind_and_file(finding);
            let uri = source.file_url(file.as_deref(), endpoint);
            self.add(kind, level, &finding.to_string(), &uri);
        }
    }

    /// Adds a source that could not be read.
    pub(crate) fn add_error(&mut self, source: &RepoArg, endpoint: &Endpoint, error: &Error) {
        let chain = std::iter::once(error.to_string()).chain(causes(error));
        let message = chain.collect::<Vec<_>>().join(": ");
        self.add(error.code().to_owned(), "error", &message, &source.file_url(None, endpoint));
    }

    fn add(&mut self, rule: String, level: &str, message: &str, uri: &str) {
        self.results.push(json!({
            "ruleId": rule,
            "level": level,
            "message": { "text": message },
            "locations": [{ "physicalLocation": { "artifactLocation": { "uri": uri } } }],
        }));
        self.rules.insert(rule);
    }

    /// Returns the document.
    pub(crate) fn finish(self) -> Value {
        let rules: Vec<_> = self.rules.iter().map(|id| json!({ "id": id })).collect();
        let driver = json!({
            "name": "hf-meta",
            "semanticVersion": env!("CARGO_PKG_VERSION"),
            "rules": rules,
        });
        json!({
            "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
            "version": "2.1.0",
            "runs": [{ "tool": { "driver": driver }, "results": self.results }],
        })
    }
}

/// Returns the kind of a finding and the file it is about.
fn kind_and_file(finding: &Finding) -> (String, Option<String>) {
    let fields = serde_json::to_value(finding).unwrap_or_default();
    let text = |name: &str| fields.get(name).and_then(Value::as_str).map(str::to_owned);
    (text("kind").unwrap_or_default(), text("file").or_else(|| text("shard")))
}
