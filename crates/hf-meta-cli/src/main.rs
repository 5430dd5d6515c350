//! The `hf-meta` command.

fn main() -> std::process::ExitCode {
    hf_meta_cli::main(std::env::args_os()).into()
}
