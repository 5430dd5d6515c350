//! Output options of subcommands.

use clap::ColorChoice;

/// The option of every subcommand for messages, before or after its name.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct OutputArgs {
    /// Suppress progress and warnings, but not errors
    #[arg(long, short, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
}

/// The option of the subcommands that print text with colors. `badge` has another `--color`.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct ColorArgs {
    /// When to use colors: auto, always or never [default: auto]
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    #[arg(hide_default_value = true, hide_possible_values = true)]
    color: ColorChoice,
}

impl ColorArgs {
    /// Applies the option to stdout and stderr.
    pub(crate) fn apply(self) {
        let choice = match self.color {
            // The environment decides.
            ColorChoice::Auto => return,
            ColorChoice::Always => anstream::ColorChoice::Always,
            ColorChoice::Never => anstream::ColorChoice::Never,
        };
        choice.write_global();
    }
}
