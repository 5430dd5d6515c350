//! What the Hub itself says of a repo's weights.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::formats::Dtype;

/// The parameters that a Hub shows for a repo. Nobody has held them against the files here, and what the
/// Hub counts as a parameter has changed more than once.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HubReportedCount {
    /// Parameters of each dtype.
    pub parameters: Vec<(Dtype, u64)>,
    /// Parameters of all dtypes.
    pub total: u64,
}

#[derive(Deserialize)]
struct Info {
    safetensors: Option<Safetensors>,
}

#[derive(Deserialize)]
struct Safetensors {
    parameters: BTreeMap<String, u64>,
    total: u64,
}

impl HubReportedCount {
    /// The most bytes that the Hub may take to say it.
    pub(crate) const LIMIT: u64 = 1 << 16;

    /// The claim in what [`Endpoint::claim`](super::Endpoint::claim) leads to; `None` where there is none.
    pub(crate) fn from_json(json: &[u8]) -> Option<Self> {
        let Safetensors { parameters, total } =
            serde_json::from_slice::<Info>(json).ok()?.safetensors?;
        let parameters = parameters.iter().map(|(dtype, count)| (dtype.as_str().into(), *count));
        Some(Self { parameters: parameters.collect(), total })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims() {
        let json = br#"{"id":"a/b","safetensors":{"parameters":{"BF16":7},"total":7}}"#;
        let claim = HubReportedCount { parameters: vec![(Dtype::BF16, 7)], total: 7 };
        assert_eq!(HubReportedCount::from_json(json), Some(claim));
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
