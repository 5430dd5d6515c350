//! Findings about the pickles of a checkpoint.

use std::collections::BTreeMap;

use crate::formats::pytorch::{PickleSummary, is_allowed_import};
use crate::formats::{RepoPath, clip};
use crate::results::{Finding, bounded};

/// The imports and shared tensors of the pickles of a checkpoint.
#[derive(Debug, Default)]
pub(super) struct PickleFindings {
    files: u64,
    /// The rejected imports, with the first file that contains each.
    unsafe_imports: BTreeMap<String, RepoPath>,
    views: u64,
    /// The first tensor that shares elements, and the tensor that contains them.
    example: Option<(String, String)>,
}

impl PickleFindings {
    /// Adds the pickle of a file.
    pub(super) fn add(&mut self, file: &RepoPath, pickle: &PickleSummary) {
        self.files += 1;
        for import in pickle.imports.iter().filter(|import| !is_allowed_import(import)) {
            let first = self.unsafe_imports.entry(import.clone()).or_insert_with(|| file.clone());
            // Files arrive in any order.
            *first = first.clone().min(file.clone());
        }
        self.views += pickle.views.len() as u64;
        let views = pickle.views.iter().map(|view| (view.name.clone(), view.stored_in.clone()));
        self.example = self.example.take().into_iter().chain(views.take(1)).min();
    }

    pub(super) fn findings(&self) -> impl Iterator<Item = Finding> {
        let imports = self.unsafe_imports.iter().map(|(import, file)| Finding::UnsafeImport {
            file: clip(file.as_str()),
            import: clip(import),
        });
        let shared = self.example.as_ref().map(|(tensor, stored_in)| Finding::SharedElements {
            tensors: self.views,
            tensor: clip(tensor),
            stored_in: clip(stored_in),
        });
        let pickled = (self.files > 0).then_some(Finding::PickledWeights);
        bounded(imports).into_iter().chain(shared).chain(pickled)
    }
}
