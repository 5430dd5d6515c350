//! The malformed headers of huggingface.js's tests: counts that the file cannot have.

use hf_meta_count::results::Finding;

use hf_meta::Error;
use hf_meta_format::formats::safetensors::HeaderErrorKind;
use serde_json::{Value, json};

use crate::call::bad_input::error_of;
use crate::hub::{LocalHub, Repo};
use crate::support::{self, file_with_header};

/// Two shapes in a file of 8 bytes, one of them of 9e46 elements.
#[tokio::test]
async fn a_count_over_64_bits_is_an_error() {
    let header = json!({
        "__metadata__": { "format": "pt" },
        "model.qmoe.experts": {
            "dtype": "F4",
            "shape": [1_u64 << 62, 1_u64 << 62, 1_u64 << 32],
            "data_offsets": [0, 4],
        },
        "model.qmoe.router": { "dtype": "F4", "shape": [24, 1024, 962], "data_offsets": [4, 8] },
    });
    let error = error_of(file_with_header(&header.to_string(), 8)).await;
    let Error::InvalidHeader { source, .. } = error else { panic!("{error:?}") };
    assert_eq!(source.kind, HeaderErrorKind::Overflow);
    assert_eq!(source.tensor.as_deref(), Some("model.qmoe.experts"));
}

/// Ten tensors of 2 GiB each, which agree with each other, in a file without data.
#[tokio::test]
async fn tensors_without_their_data_are_an_error() {
    let experts = (0..10_u64).map(|at| {
        let span = [at << 31, (at + 1) << 31];
        let entry = json!({ "dtype": "F4", "shape": [65_536, 65_536], "data_offsets": span });
        (format!("model.experts.{at}.w"), entry)
    });
    let header: serde_json::Map<_, _> = experts.collect();
    let error = error_of(file_with_header(&Value::from(header).to_string(), 0)).await;
    let Error::InvalidHeader { source, .. } = error else { panic!("{error:?}") };
    assert_eq!(source.kind, HeaderErrorKind::FileSizeMismatch);
}

/// A declared total is reported as declared, and never used as the count.
#[tokio::test]
async fn a_declared_total_is_not_the_count() {
    for (claimed, is_true) in [("999000000000", false), ("200", true)] {
        let header = json!({
            "__metadata__": { "format": "pt", "total_parameters": claimed },
            "weight": { "dtype": "F32", "shape": [10, 20], "data_offsets": [0, 800] },
        });
        let file = file_with_header(&header.to_string(), 800);
        let hub =
            LocalHub::start([Repo::new("org/claims").file("model.safetensors", file)]).unwrap();
        let parsed = support::parse(&hub, "org/claims").await.unwrap();
        let summary = serde_json::to_value(parsed.report()).unwrap();
        assert_eq!(summary["parameterCount"], json!({ "F32": 200 }));
        assert_eq!(summary["parameterTotal"], 200);
        assert_eq!(summary["declaredTotal"], claimed.parse::<u64>().unwrap());
        let findings = &parsed.report().findings;
        assert_eq!(findings.is_empty(), is_true, "{findings:?}");
        let flagged = matches!(findings[..], [Finding::TotalParametersMismatch { found: 200, .. }]);
        assert_eq!(flagged, !is_true, "{findings:?}");
    }
}
