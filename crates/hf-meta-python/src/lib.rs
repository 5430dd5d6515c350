//! The Python module `hf_meta._native`: blocking calls that release the GIL, and the command.
//!
//! The public functions are in `../hf_meta/__init__.py`.

mod error;
mod session;

/// The native part of `hf_meta`.
#[pyo3::pymodule]
mod _native {
    use std::ffi::OsString;

    use pyo3::{Python, pyfunction};

    #[pymodule_export]
    use super::session::Session;

    /// Runs the command with these arguments and returns its exit code.
    #[pyfunction]
    fn run_command(py: Python<'_>, arguments: Vec<OsString>) -> u8 {
        py.detach(|| hf_meta_cli::main(arguments))
    }
}
