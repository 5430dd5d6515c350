//! The rules of counting, each with an example that is read over HTTP.
//!
//! [`TABLE`] lists them for readers too.

use futures::stream::{self, StreamExt};
use hf_meta::Dtype;
use hf_meta_count::count::TensorGroup;
use hf_meta_count::results::{Finding, Severity};

use super::quantization;
use crate::hub::{File, LocalHub, Repo};
use crate::support;

const TABLE: &str = include_str!("rules/table.md");

/// The number of repositories that are read concurrently.
const AT_ONCE: usize = 8;

/// A row of the table.
#[derive(Clone, Copy)]
struct Row<'a> {
    rule: &'a str,
    config: &'a str,
    tensors: &'a str,
    counted: &'a str,
}

impl<'a> Row<'a> {
    fn parse(line: &'a str) -> Self {
        let cells: Vec<_> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let [rule, config, tensors, counted] = cells[..] else { panic!("{line}") };
        Self { rule, config: config.trim_matches('`'), tensors, counted }
    }

    fn all() -> impl Iterator<Item = Self> {
        TABLE.lines().filter(|line| line.starts_with("| ")).skip(1).map(Self::parse)
    }

    /// The file with the tensors of the row: names, dtypes and, unless it is `[12]`, the shape.
    fn file(&self) -> File {
        let tensors = self.tensors.split("; ").map(|tensor| tensor.trim_matches('`'));
        let tensors: Vec<_> = tensors.map(tensor).collect();
        let tensors =
            tensors.iter().map(|(name, dtype, shape, width)| (*name, *dtype, &shape[..], *width));
        quantization::tensors(&tensors.collect::<Vec<_>>())
    }

    /// Reads the repository of the row and returns the groups of its tensors.
    async fn count(&self) -> String {
        let repo = Repo::new("org/case").file("model.safetensors", self.file());
        let config = File::from_bytes(self.config.to_owned());
        let hub = LocalHub::start([repo.file("config.json", config)]).unwrap();
        let parsed = support::parse(&hub, "org/case").await.unwrap();
        let is_exact = parsed.report().is_exact();
        let is_note = |finding: &Finding| finding.severity() == Severity::Note;
        assert_eq!(parsed.report().findings.iter().all(is_note), is_exact, "{}", self.rule);
        let groups = parsed.report().breakdown.groups.iter().map(shown);
        groups.collect::<Vec<_>>().join("; ")
    }
}

/// Parses a tensor as name, dtype, shape and bytes per element.
fn tensor(text: &str) -> (&str, &str, Vec<u64>, u64) {
    let (name, rest) = text.split_once(' ').unwrap();
    let (dtype, shape) = rest.split_once(' ').unwrap_or((rest, "[12]"));
    let width = Dtype::from(dtype).bits().unwrap() / 8;
    (name, dtype, serde_json::from_str(shape).unwrap(), width)
}

fn shown(TensorGroup { dtype, counted_as, buffer, count, .. }: &TensorGroup) -> String {
    let buffer = buffer.map_or_else(String::new, |buffer| format!(" ({buffer})"));
    format!("{dtype} {} → {}: {counted_as}{buffer}", count.elements, count.parameters)
}

#[tokio::test]
async fn counts_match_the_rule_table() {
    let rows = stream::iter(Row::all());
    let counted = rows.map(|row| async move { (row, row.count().await) }).buffered(AT_ONCE);
    let counted: Vec<_> = counted.collect().await;
    assert!(!counted.is_empty());
    let wrong = counted.iter().filter(|(row, counted)| row.counted != counted);
    let wrong: Vec<_> = wrong.map(|(row, counted)| format!("{}: {counted}", row.rule)).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_method_and_every_reason_is_in_the_table() {
    let methods = ["gptq", "awq", "bitsandbytes", "compressed-tensors", "fp8", "mxfp4"];
    let named = methods.map(|method| format!(r#""quant_method":"{method}""#));
    for text in named.iter().map(String::as_str).chain([r#"{"quantization":"#]) {
        assert!(Row::all().any(|row| row.config.contains(text)), "{text}");
    }
    let reasons = [
        "as stored",
        "unpacked from ",
        "packing unresolved",
        "scale",
        "zero point",
        "unpacked shape",
        "column order",
        "lookup table",
        "quantization state",
        "scalar",
        "attention mask",
        "position or token type IDs",
        "rotary frequencies",
        "batch-norm statistics",
        "codebook",
        "attention decay",
        "fixed positions",
        "router bias",
        "constant",
    ];
    for reason in reasons {
        assert!(Row::all().any(|row| row.counted.contains(reason)), "{reason}");
    }
}
