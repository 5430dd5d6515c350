//! The parameter count that the Hub itself reports for a repository.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::formats::Dtype;

/// The parameter count that the Hub reports for a repository.
///
/// It is not verified against the files, and the Hub's counting rules have changed more than once. Prefer a count
/// from the headers. This one is useful for repositories whose files cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct HubReportedCount {
    /// The number of parameters per dtype, sorted by dtype name.
    pub parameters: Vec<(Dtype, u64)>,
    /// The total number of parameters.
    pub total: u64,
}

#[derive(Deserialize)]
struct RevisionInfo {
    safetensors: Option<SafetensorsInfo>,
}

#[derive(Deserialize)]
struct SafetensorsInfo {
    parameters: BTreeMap<String, u64>,
    total: u64,
}

impl HubReportedCount {
    /// The maximum size of the JSON in bytes. The Hub sends a few hundred bytes.
    pub(crate) const LIMIT: u64 = 1 << 16;

    /// Parses the response from [`Endpoint::reported_count_url`](super::Endpoint::reported_count_url). Returns `None`
    /// if it has no count.
    pub(crate) fn from_json(json: &[u8]) -> Option<Self> {
        let SafetensorsInfo { parameters, total } =
            serde_json::from_slice::<RevisionInfo>(json).ok()?.safetensors?;
        let parameters = parameters.iter().map(|(dtype, count)| (dtype.as_str().into(), *count));
        Some(Self { parameters: parameters.collect(), total })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_is_parsed_or_absent() {
        let json = br#"{"id":"a/b","safetensors":{"parameters":{"BF16":7},"total":7}}"#;
        let count = HubReportedCount { parameters: vec![(Dtype::BF16, 7)], total: 7 };
        assert_eq!(HubReportedCount::from_json(json), Some(count));
        for json in [
            "",
            "[]",
            "{}",
            r#"{"safetensors":null}"#,
            r#"{"safetensors":{"parameters":{"BF16":-1},"total":7}}"#,
            r#"{"safetensors":{"parameters":{"BF16":1},"total":1e300}}"#,
        ] {
            assert_eq!(HubReportedCount::from_json(json.as_bytes()), None, "{json}");
        }
    }
}
