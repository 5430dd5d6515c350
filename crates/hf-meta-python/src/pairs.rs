//! The arguments `draft`, `adapter` and `mmproj`.

use hf_meta::{Error, Model, VerifyReport};
use hf_meta_count::engines::add_pair;
use hf_meta_count::memory::MemoryOptions;
use hf_meta_count::results::EnginePairKind;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::help::NamedSource;

/// The kinds of the arguments, in their order.
const KINDS: [EnginePairKind; 3] =
    [EnginePairKind::Draft, EnginePairKind::Adapter, EnginePairKind::Projector];

/// Returns the given files with their kinds.
pub(crate) fn given_pairs(
    pairs: [Option<NamedSource>; 3],
    options: Option<&MemoryOptions>,
) -> PyResult<Vec<(EnginePairKind, NamedSource)>> {
    let pairs = KINDS.into_iter().zip(pairs).filter_map(|(kind, pair)| Some((kind, pair?)));
    let pairs: Vec<_> = pairs.collect();
    if options.is_none() && !pairs.is_empty() {
        let message = "`draft`, `adapter` and `mmproj` require `engine`";
        return Err(PyValueError::new_err(message));
    }
    Ok(pairs)
}

/// Verifies a file that is loaded together with a model, and adds it to the answer.
pub(crate) async fn read_pair(
    report: &mut VerifyReport,
    kind: EnginePairKind,
    pair: &Model,
    options: Option<MemoryOptions>,
) -> Result<(), Error> {
    let pair = pair.verify().engine(options).await?;
    if let Some(options) = &options {
        add_pair(report, kind, &pair, options);
    }
    Ok(())
}
