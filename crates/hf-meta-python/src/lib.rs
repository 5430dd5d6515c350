//! The Python module `hf_meta._native`: calls that run on the threads of an engine, and the command.
//!
//! The public functions are in `../hf_meta`.

mod clients;
mod diff;
mod edit;
mod engine;
mod error;
mod help;
mod job;
mod memory;
mod pairs;
mod tensors;

/// The native part of `hf_meta`.
#[pyo3::pymodule(gil_used = false)]
mod _native {
    use std::ffi::OsString;

    use hf_meta::{Endpoint, Source};
    use hf_meta_format::metadata::Thumbnail;
    use pyo3::{Python, pyfunction};

    #[pymodule_export]
    use super::engine::{Engine, NativeCall};

    #[pymodule_export]
    use super::tensors::TensorStream;

    #[pymodule_export]
    #[expect(non_upper_case_globals, reason = "the name of the version of a Python module")]
    const __version__: &str = env!("CARGO_PKG_VERSION");

    /// Completes or undoes interrupted edits of a local source. Returns a description of each.
    #[pyfunction]
    fn complete_edits(py: Python<'_>, source: &str) -> Vec<String> {
        let Ok(Source::Local(path)) = Source::parse(source, &Endpoint::default()) else {
            return Vec::new();
        };
        py.detach(|| super::edit::complete_edits(&path))
    }

    /// Returns an image as a data URL. Returns None for other bytes.
    #[pyfunction]
    fn data_url(image: &[u8]) -> Option<String> {
        Thumbnail::data_url(image)
    }

    /// Runs the command with these arguments and returns its exit code.
    #[pyfunction]
    fn run_command(py: Python<'_>, arguments: Vec<OsString>) -> u8 {
        py.detach(|| hf_meta_cli::main(arguments))
    }
}
