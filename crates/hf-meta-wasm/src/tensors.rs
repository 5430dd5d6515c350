//! The byte ranges of selected tensors. The build moves these functions to the second module.

use hf_meta_count::Weights;
use hf_meta_format::read_plan::{PlanOptions, ReadPlan, TensorSelection};

use super::json::json;

/// Returns the ranges of `hf-meta get --plan-only --json`, or the reason why the tensors cannot be read.
#[inline(never)]
pub(crate) fn plan(weights: &Weights, names: &str, max_range: u64) -> Result<String, String> {
    let names: Vec<String> = serde_json::from_str(names).map_err(|error| error.to_string())?;
    let selection = TensorSelection::patterns(names);
    let options = PlanOptions::default().max_range(max_range);
    let plan = ReadPlan::new(weights.files(), &selection, &options);
    plan.map(|plan| json(&plan)).map_err(|error| error.to_string())
}
