//! Compares the tensors of a model with what its loader builds: with `config.json`, with the whole models that need none, or
//! else with each other.

use super::Mismatches;
use super::config::compare;
use super::model_class::{LoadedAs, ModelClass};
use super::parts::check_parts;
use super::siblings::{check_biases, check_lists, check_siblings, lists};
use super::single_file::check_single_file;
use crate::architectures::renames::Renames;
use crate::base::model_config::ModelConfig;
use crate::count::names::pattern::NamePattern;
use crate::results::{ConfigCheck, Finding};
use hf_meta_format::base::json_object::{parse, standard_json};
use hf_meta_format::formats::{DetectedFormat, Headers, all_tensors};

/// Compares all tensors of a model with the contents of `config.json`, or with each other if there is none or its
/// architecture is unknown.
pub(crate) fn check_model(
    json: Option<&[u8]>,
    headers: &Headers,
    loaded: LoadedAs,
) -> (Vec<Finding>, ConfigCheck) {
    let json = json.map(standard_json);
    let config = json.as_deref().map(|json| parse::<ModelConfig<'_>>(json).ok());
    let mut found = Mismatches::default();
    let result = match &config {
        None => check_single_file(headers, &mut found)
            .unwrap_or_else(|| Err("there is none next to the weights".to_owned())),
        Some(None) => {
            let content = json.as_deref().and_then(DetectedFormat::recognize);
            Err(content.map_or_else(
                || "it is not a JSON object".to_owned(),
                |content| format!("it looks like {content}"),
            ))
        }
        Some(Some(config)) => {
            let mut compared = Mismatches::default();
            let result = compare(config, headers, loaded, &mut compared);
            if compared.has_errors() && is_in_memory(config, loaded, headers) {
                Err("the files have the names of a model in memory".to_owned())
            } else {
                found.append(compared);
                result
            }
        }
    };
    if result.is_err() {
        let lists = lists(headers);
        check_siblings(&lists, |_| false, |_| false, &mut found);
        // llama.cpp stores some biases without a weight.
        let is_gguf = headers.iter().any(|(_, header)| header.is_self_describing);
        check_biases(headers, |_| is_gguf, &mut found);
        check_lists(lists, config.flatten().as_ref(), headers, &mut found);
    }
    check_parts(headers, &mut found);
    let (compared, reason) = (result.is_ok(), result.err());
    (found.into_findings(), ConfigCheck { compared, reason })
}

/// Returns whether files have names of modules that a loader joins or splits, after it has done so. transformers loads them
/// as they are (`convert_and_load_state_dict_in_model` in `core_model_loading.py`, 5.24), and the layouts have other names.
fn is_in_memory(config: &ModelConfig<'_>, loaded: LoadedAs, headers: &Headers) -> bool {
    ModelClass::new(config, loaded).is_some_and(|class| {
        let name = class.names.first().map(String::as_str);
        let renames = Renames::new(name, &class.architecture, &class.object);
        all_tensors(headers).any(|(name, _)| renames.is_in_memory(&NamePattern::new(name).text))
    })
}
