//! The byte ranges of selected tensors. The build moves these functions to the second module.

use hf_meta_count::Weights;
use hf_meta_format::read_plan::{PlanError, PlanOptions, ReadPlan, StorageStarts, TensorSelection};

use super::json::json;

/// Returns the ranges of `hf-meta get --plan-only --json`, or the reason why the tensors cannot be read. `headers` are the
/// bytes of the local headers of ZIP archives. If they are missing, returns a list of their ranges.
#[inline(never)]
pub(crate) fn plan(
    weights: &Weights,
    names: &str,
    max_range: u64,
    headers: &[u8],
) -> Result<String, String> {
    let names: Vec<String> = serde_json::from_str(names).map_err(|error| error.to_string())?;
    let selection = TensorSelection::patterns(names);
    let text = |error: PlanError| error.to_string();
    let needed = ReadPlan::local_headers(weights.files(), &selection).map_err(text)?;
    let mut rest = headers;
    let mut read = Vec::new();
    for header in &needed {
        let length = usize::try_from(header.range.end - header.range.start).unwrap_or(usize::MAX);
        let Some((bytes, after)) = rest.split_at_checked(length) else { return Ok(json(&needed)) };
        read.push((header.clone(), bytes.to_vec()));
        rest = after;
    }
    let starts = StorageStarts::new(read).map_err(text)?;
    let options = PlanOptions::default().max_range(max_range).storage_starts(starts);
    let plan = ReadPlan::new(weights.files(), &selection, &options);
    plan.map(|plan| json(&plan)).map_err(text)
}
