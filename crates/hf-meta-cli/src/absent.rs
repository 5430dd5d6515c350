//! Subcommands of features that are not part of this build. They are recognized, so that the error names the feature.

use std::ffi::OsString;

use crate::exit::{CommandError, ExitStatus};

/// The arguments of an absent subcommand, which are ignored.
#[derive(Debug, clap::Args)]
#[command(about = "Not included in this build", hide = true, disable_help_flag = true)]
pub(crate) struct AbsentArgs {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    _arguments: Vec<OsString>,
}

/// Returns the error for a subcommand of an absent feature.
pub(crate) fn not_included(feature: &str) -> Result<ExitStatus, CommandError> {
    Err(CommandError::usage(format!(
        "this build of `hf-meta` does not include the {feature}; install it with `--features {feature}`"
    )))
}
