//! The findings of `verify` as JUnit XML, which the pages of most CI systems show.

use std::fmt::Write;

use hf_meta::{Error, VerifyReport};
use hf_meta_count::results::text::escape;
use hf_meta_count::results::{Finding, Severity, VerifiedSet};

use super::output::message_with_causes;
use super::repos::RepoArg;
use super::sarif::kind_and_file;

/// A report in which each source is a test suite, and each weight set a test case.
#[derive(Debug, Default)]
pub(crate) struct JunitLog {
    suites: String,
    totals: Totals,
}

/// The number of test cases, and of those that failed or could not be run.
#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    tests: usize,
    failures: usize,
    errors: usize,
}

impl JunitLog {
    /// Adds the findings of a report. Those of at least the severity `failure` are failures.
    pub(crate) fn add_report(
        &mut self,
        source: &RepoArg,
        report: &VerifyReport,
        failure: Severity,
    ) {
        let (mut cases, mut totals) = (String::new(), Totals::default());
        let is_error = |finding: &Finding| matches!(finding, Finding::Unreadable { .. });
        for (set, findings) in report.sets.iter().zip(findings_by_set(&report.sets)) {
            let (mut found, mut others) = (String::new(), String::new());
            for finding in &findings {
                if is_error(finding) {
                    found += &element("error", finding);
                } else if finding.severity() >= failure {
                    found += &element("failure", finding);
                } else {
                    let _ = writeln!(others, "{finding}");
                }
            }
            totals.tests += 1;
            if findings.iter().copied().any(is_error) {
                totals.errors += 1;
            } else if !found.is_empty() {
                totals.failures += 1;
            }
            if !others.is_empty() {
                let _ = writeln!(found, "<system-out>{}</system-out>", text(&others));
            }
            cases += &case(source, set.path.as_str(), &found);
        }
        self.add_suite(source, &cases, totals);
    }

    /// Adds a source that could not be read.
    pub(crate) fn add_error(&mut self, source: &RepoArg, error: &Error) {
        let found = format!(
            "<error type=\"{}\" message=\"{}\"/>\n",
            error.code(),
            attribute(&message_with_causes(error))
        );
        let totals = Totals { tests: 1, failures: 0, errors: 1 };
        self.add_suite(source, &case(source, "weights", &found), totals);
    }

    fn add_suite(&mut self, source: &RepoArg, cases: &str, totals: Totals) {
        let name = attribute(&source.display);
        let _ = write!(
            self.suites,
            "<testsuite name=\"{name}\"{}>\n{cases}</testsuite>\n",
            totals.attributes()
        );
        self.totals.tests += totals.tests;
        self.totals.failures += totals.failures;
        self.totals.errors += totals.errors;
    }

    /// Returns the document.
    pub(crate) fn finish(self) -> String {
        let (totals, suites) = (self.totals.attributes(), self.suites);
        format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"hf-meta verify\"{totals}>\n{suites}</testsuites>\n"
        )
    }
}

/// Returns the findings of each set. A finding about the repository is in the first set, but belongs to the one in whose
/// folder the file is, such as a missing `unet/config.json`.
fn findings_by_set(sets: &[VerifiedSet]) -> Vec<Vec<&Finding>> {
    fn folder(path: &str) -> &str {
        path.rsplit_once('/').map_or("", |(folder, _)| folder)
    }
    let mut by_set = vec![Vec::new(); sets.len()];
    for (at, set) in sets.iter().enumerate() {
        for finding in &set.findings {
            let file = kind_and_file(finding).1;
            let file_folder = file.as_deref().map_or_else(|| folder(set.path.as_str()), folder);
            let is_owner = |set: &VerifiedSet| folder(set.path.as_str()) == file_folder;
            let owner = if is_owner(set) { None } else { sets.iter().position(is_owner) };
            by_set[owner.unwrap_or(at)].push(finding);
        }
    }
    by_set
}

impl Totals {
    fn attributes(self) -> String {
        let Self { tests, failures, errors } = self;
        format!(" tests=\"{tests}\" failures=\"{failures}\" errors=\"{errors}\"")
    }
}

fn case(source: &RepoArg, name: &str, content: &str) -> String {
    let (class, name) = (attribute(&source.display), attribute(name));
    format!("<testcase classname=\"{class}\" name=\"{name}\">\n{content}</testcase>\n")
}

fn element(name: &str, finding: &Finding) -> String {
    let (kind, _) = kind_and_file(finding);
    format!("<{name} type=\"{kind}\" message=\"{}\"/>\n", attribute(&finding.to_string()))
}

/// Escapes a text of several lines. Control characters, which XML excludes, are escaped as on a terminal.
fn text(lines: &str) -> String {
    lines.lines().map(|line| attribute(line) + "\n").collect()
}

/// Escapes the value of an attribute.
fn attribute(text: &str) -> String {
    let text = escape(text).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    text.replace('"', "&quot;")
}
