//! The tensors of several weight sets whose values are checked together.

use std::collections::HashMap;

use hf_meta_count::results::{Finding, ValueCheck, bounded};
use hf_meta_format::formats::{Dtype, FileHeader, RepoPath};
use hf_meta_format::metadata::ModelSpec;
use hf_meta_format::read_plan::{PlanOptions, ReadPlan, StorageStarts, TensorSelection};

use super::data_hash::DataHash;

/// The tensors of weight sets whose values are checked together, because the limits of a sample are for all of them.
#[derive(Debug, Default)]
pub(super) struct CheckedSets {
    /// The tensors of all sets, without ranges.
    pub(super) plan: ReadPlan,
    /// The number of tensors up to the end of each set.
    ends: Vec<usize>,
    /// The hashes that the metadata of files state for their data.
    pub(super) hashes: HashMap<RepoPath, String>,
    /// The number of tensors that cannot be read by range.
    pub(super) left_out: u64,
    /// The reason why those cannot be read.
    pub(super) reason: Option<String>,
}

impl CheckedSets {
    /// Adds the tensors of a set, with the positions of the storages in its files.
    pub(super) fn add<'a>(
        &mut self,
        files: impl Iterator<Item = (RepoPath, &'a FileHeader)>,
        starts: &StorageStarts,
    ) {
        // The ranges are planned for the parts that are read.
        let options = PlanOptions::default().max_range(u64::MAX).storage_starts(starts.clone());
        let files: Vec<_> = files.collect();
        let tensors = files.iter().map(|(_, header)| header.tensors().len() as u64).sum::<u64>();
        let all = TensorSelection::all();
        match ReadPlan::new(files.iter().cloned(), &all, &options.leave_out(true)) {
            Ok(plan) => {
                self.left_out += plan.left_out.len() as u64;
                if let Some(first) = plan.left_out.first() {
                    self.reason.get_or_insert_with(|| first.reason.to_string());
                }
                self.plan.tensors.extend(plan.tensors);
                let hashes = files.into_iter().filter_map(|(path, header)| {
                    let spec = ModelSpec::from_metadata(header.metadata()?)?;
                    Some((path, spec.data_hash()?))
                });
                self.hashes.extend(hashes);
            }
            // A set without tensors has no values.
            Err(_) if tensors == 0 => {}
            Err(error) => {
                self.left_out += tensors;
                self.reason.get_or_insert_with(|| error.to_string());
            }
        }
        self.ends.push(self.plan.tensors.len());
    }

    /// Returns whether a set contains weights of integers, or packed ones.
    pub(super) fn have_integer_weights(&self) -> bool {
        self.plan.tensors.iter().any(|tensor| match &*tensor.name {
            name if name.ends_with("weight_packed") => tensor.dtype == Dtype::I32,
            name => name.ends_with("weight") && tensor.dtype == Dtype::I8,
        })
    }

    /// Starts the hash of the file that begins with a tensor. Returns `None` if nothing is stated about it, or if not all
    /// of it is read.
    pub(super) fn hash_of(&self, first_tensor: usize, check: ValueCheck) -> Option<DataHash> {
        if check != ValueCheck::All {
            return None;
        }
        let tensor = &self.plan.tensors[first_tensor];
        let stated = self.hashes.get(&tensor.file.path)?.clone();
        Some(DataHash::new(first_tensor, tensor, stated))
    }

    /// Groups findings, each with the index of a tensor, by their sets.
    pub(super) fn by_set(&self, findings: Vec<(usize, Finding)>) -> Vec<Vec<Finding>> {
        let mut sets = vec![Vec::new(); self.ends.len()];
        for (at, finding) in findings {
            let set = self.ends.partition_point(|end| *end <= at);
            if let Some(found) = sets.get_mut(set) {
                found.push(finding);
            }
        }
        sets.into_iter().map(|found| bounded(found.into_iter())).collect()
    }
}
