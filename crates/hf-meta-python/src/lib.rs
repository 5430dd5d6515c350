//! The Python module `hf_meta._native`: calls that run on the threads of an engine, and the command.
//!
//! The public functions are in `../hf_meta`.

mod clients;
mod engine;
mod error;
mod help;
mod memory;

/// The native part of `hf_meta`.
#[pyo3::pymodule(gil_used = false)]
mod _native {
    use std::ffi::OsString;

    use pyo3::{Python, pyfunction};

    #[pymodule_export]
    use super::engine::{Engine, NativeCall};

    #[pymodule_export]
    #[expect(non_upper_case_globals, reason = "the name of the version of a Python module")]
    const __version__: &str = env!("CARGO_PKG_VERSION");

    /// Runs the command with these arguments and returns its exit code.
    #[pyfunction]
    fn run_command(py: Python<'_>, arguments: Vec<OsString>) -> u8 {
        py.detach(|| hf_meta_cli::main(arguments))
    }
}
