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

fn not_included(feature: &str) -> Result<ExitStatus, CommandError> {
    Err(CommandError::usage(format!(
        "this build of `hf-meta` does not include the {feature}; install it with `--features {feature}`"
    )))
}

/// The counterpart of `census.rs`.
#[cfg(not(feature = "census"))]
pub(crate) mod census {
    use std::future::{Future, ready};
    use std::path::Path;

    use hf_meta_repo_list::ListedName;

    pub(crate) use super::AbsentArgs as CensusArgs;
    use super::{CommandError, ExitStatus};
    use crate::connection::ConnectionArgs;
    use crate::stderr::ProgressLine;

    pub(crate) fn define(command: clap::Command) -> clap::Command {
        command
    }

    pub(crate) fn run(
        _args: &CensusArgs,
        _connection: &ConnectionArgs,
        _line: &ProgressLine,
    ) -> impl Future<Output = Result<ExitStatus, CommandError>> {
        ready(super::not_included("census"))
    }

    #[expect(clippy::unnecessary_wraps, reason = "the function that reads Parquet files can fail")]
    pub(crate) fn read_names(
        _file: &Path,
        _column: Option<&str>,
    ) -> Result<Option<Vec<ListedName>>, CommandError> {
        Ok(None)
    }
}

/// The counterpart of `serve.rs`.
#[cfg(not(feature = "server"))]
pub(crate) mod serve {
    use std::future::{Future, ready};

    pub(crate) use super::AbsentArgs as ServeArgs;
    use super::{CommandError, ExitStatus};
    use crate::connection::ConnectionArgs;

    pub(crate) fn define(command: clap::Command) -> clap::Command {
        command
    }

    pub(crate) fn run(
        _args: &ServeArgs,
        _connection: &ConnectionArgs,
    ) -> impl Future<Output = Result<ExitStatus, CommandError>> {
        ready(super::not_included("server"))
    }
}
