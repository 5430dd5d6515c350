//! Headers and indexes to parse, with the names of DeepSeek-R1 and Kimi-K2.5.

#[path = "../../examples/make_fixtures/models/mod.rs"]
mod models;

use models::{Model, Module, Tensor};

/// Returns a header with the given number of tensors: the tensors of DeepSeek-R1 in the order of its architecture. From
/// the second copy on, their names begin with the number of the copy.
///
/// # Errors
///
/// Returns an error if it cannot be written as JSON, which no architecture here causes.
pub(crate) fn header(tensors: usize) -> serde_json::Result<Vec<u8>> {
    let source: Vec<_> = models::deepseek_r1().tensors().cloned().collect();
    let copy = |copy: usize| {
        source.iter().map(move |tensor| match copy {
            0 => tensor.clone(),
            _ => Tensor { name: format!("{copy}.{}", tensor.name), ..tensor.clone() },
        })
    };
    let mut model = Model::new("org/large", Module::new(models::Dtype::F32));
    model.weights[0].tensors = (0..).flat_map(copy).take(tensors).collect();
    let file = model.lay_out()?.swap_remove(0);
    Ok(file.head[8..].to_vec())
}

/// Returns the index of the first tensors of Kimi-K2.5; all of them have 64 shards and an index of 23.6 MB.
///
/// # Errors
///
/// Returns an error if it cannot be written as JSON, which no architecture here causes.
pub(crate) fn index(tensors: usize) -> serde_json::Result<Vec<u8>> {
    let mut model = models::kimi_k2_5();
    model.weights[0].tensors.truncate(tensors);
    let files = model.lay_out()?;
    let index = files.into_iter().find(|file| file.path.ends_with(".index.json"));
    Ok(index.map(|file| file.head).unwrap_or_default())
}
