//! The checks of the metadata in the headers of safetensors files.

use crate::results::{Finding, StatedLoader, bounded};
use hf_meta_format::formats::safetensors::EXTENSION;
use hf_meta_format::formats::{FileHeader, RepoPath, clip};
use hf_meta_format::metadata::{MODEL_SPEC_PREFIX, ModelSpec};

/// Checks the keys of the SAI Model Spec, if a file has any, and the key that loaders require.
pub(super) fn check_metadata<'a>(
    headers: impl Iterator<Item = (RepoPath, &'a FileHeader)>,
    loader: Option<StatedLoader>,
) -> Vec<Finding> {
    let headers = headers.filter(|(file, _)| file.as_str().ends_with(EXTENSION));
    bounded(headers.flat_map(|(file, header)| {
        let file = clip(file.as_str());
        let format = missing_format(&file, header, loader);
        check_model_spec(&file, header).into_iter().chain(format)
    }))
}

fn check_model_spec(file: &str, header: &FileHeader) -> Vec<Finding> {
    let spec = header.metadata().and_then(ModelSpec::from_metadata).unwrap_or_default();
    let key = |name: &str| format!("{MODEL_SPEC_PREFIX}{name}");
    let missing: Vec<_> = spec.missing().map(key).collect();
    let missing = (!missing.is_empty())
        .then(|| Finding::IncompleteModelSpec { file: file.to_owned(), missing });
    let invalid = spec.invalid().map(|invalid| Finding::InvalidModelSpec {
        file: file.to_owned(),
        key: key(invalid.field.name),
        rule: invalid.rule.clone(),
    });
    missing.into_iter().chain(invalid).collect()
}

/// Returns a note for metadata without `format`. `load_state_dict` of accelerate 1.15.0 (`utils/modeling.py`) and of
/// transformers 4 (`modeling_utils.py`) reject them; transformers 5, diffusers and PEFT do not read the key.
fn missing_format(
    file: &str,
    header: &FileHeader,
    loader: Option<StatedLoader>,
) -> Option<Finding> {
    let is_rejected = header.metadata().is_some_and(|entries| !entries.contains_key("format"));
    (is_rejected && loader == Some(StatedLoader::Transformers))
        .then(|| Finding::MissingFormat { file: file.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Severity;
    use hf_meta_format::SafetensorsFileHeader;

    fn check(metadata: &str, loader: Option<StatedLoader>) -> Vec<String> {
        let json = format!(r#"{{"__metadata__":{metadata}}}"#);
        let header = SafetensorsFileHeader::from_json(json.as_bytes()).unwrap();
        let file = "model.safetensors".parse().unwrap();
        let found = check_metadata([(file, &*header)].into_iter(), loader);
        assert!(found.iter().all(|finding| finding.severity() < Severity::Error));
        found.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn only_files_with_keys_of_the_specification_are_checked() {
        for metadata in ["null", "{}", r#"{"format":"pt"}"#, r#"{"ss_epoch":"1","title":""}"#] {
            assert_eq!(check(metadata, None), [""; 0], "{metadata}");
        }
        let complete = r#"{"modelspec.sai_model_spec":"1.0.1","modelspec.architecture":"a","modelspec.implementation":"b","modelspec.title":"c","modelspec.date":"2025-06-01"}"#;
        assert_eq!(check(complete, None), [""; 0]);
        let wrong = complete.replace("2025-06-01", "June").replace("modelspec.title", "title");
        let expected = [
            "the metadata of `model.safetensors` lack keys that the SAI Model Spec requires: modelspec.title",
            "the value of `modelspec.date` in the metadata of `model.safetensors` is not an ISO-8601 date, such as 2023-07-16",
        ];
        assert_eq!(check(&wrong, None), expected);
    }

    #[test]
    fn metadata_without_format_are_noted_for_transformers_only() {
        let loader = Some(StatedLoader::Transformers);
        for (metadata, notes) in
            [("null", 0), (r#"{"format":"pt"}"#, 0), ("{}", 1), (r#"{"a":""}"#, 1)]
        {
            assert_eq!(check(metadata, loader).len(), notes, "{metadata}");
            assert_eq!(check(metadata, Some(StatedLoader::Diffusers)), [""; 0]);
            assert_eq!(check(metadata, None), [""; 0]);
        }
    }
}
