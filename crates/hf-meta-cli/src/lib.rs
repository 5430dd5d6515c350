//! The command-line interface. It prints data to stdout and everything else to stderr. Text from files and servers is
//! escaped before it is printed.
//!
//! Each subcommand has a module with its options and a `run` function. Subcommands that read repositories use
//! `CommandContext::for_each`, which reads them and combines exit codes. Tables are lists of columns.

mod against;
mod args;
mod badge;
#[cfg(feature = "census")]
mod census;
mod concurrent;
mod connection;
mod context;
mod diff;
mod engine;
mod error_report;
mod exit;
mod get;
mod hints;
mod inspect;
mod junit;
mod local_commands;
mod memory;
mod metadata;
mod output;
mod part_file;
mod repos;
mod sarif;
#[cfg(feature = "server")]
mod serve;
mod signal;
mod stderr;
mod table;
mod terminal;
mod verify;
mod views;

use std::cell::{Cell, RefCell};
use std::ffi::OsString;
use std::io;

use tokio::runtime::{Builder, Runtime};

use self::args::{Args, Command};
use self::context::CommandContext;
use self::error_report::print_command_error;
use self::exit::{CommandResult, ExitStatus, failed_to};
pub use self::hints::module_hint;
use self::stderr::{LogFormat, ProgressLine, init_log};
use self::terminal::apply_color;

/// Runs the command and returns its exit code. The first argument is the program name.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> u8 {
    let arguments: Vec<_> = arguments.into_iter().collect();
    if let Some(answered) = local_commands::answer_shell(&arguments, Args::definition) {
        return answered.map_or(ExitStatus::LocalIo, |()| ExitStatus::Success) as u8;
    }
    let args = Args::from_arguments(&arguments).unwrap_or_else(|error| error.exit());
    let status = run(&args).unwrap_or_else(|error| {
        if error.is_closed_pipe() {
            return ExitStatus::Success;
        }
        let token_source = args.connection.token_source();
        print_command_error(&error, token_source.as_deref());
        error.status
    });
    status as u8
}

fn run(args: &Args) -> CommandResult {
    apply_color(args.color());
    let line = ProgressLine::new(args.quiet);
    init_log(args.connection.verbose, &line, log_format(args));
    let runtime = runtime(args).map_err(failed_to("start threads"))?;
    let status = runtime.block_on(dispatch(args, line));
    // Do not wait for threads that are blocked on a disk or a pipe, possibly forever.
    runtime.shutdown_background();
    status
}

/// Builds the runtime. Threads that write the same file wait for each other, so `get` has one: two took 1.2 times as long,
/// on a machine with two cores that also ran the server.
fn runtime(args: &Args) -> io::Result<Runtime> {
    let mut builder = Builder::new_multi_thread();
    if let Some(Command::Get(_)) = args.command {
        builder.worker_threads(1);
    }
    builder.enable_all().build()
}

/// Returns the format of the log, which only a service can change.
fn log_format(args: &Args) -> LogFormat {
    match &args.command {
        #[cfg(feature = "server")]
        Some(Command::Serve(serve)) => serve.log_format,
        _ => LogFormat::default(),
    }
}

async fn dispatch(args: &Args, line: ProgressLine) -> CommandResult {
    match &args.command {
        None => inspect::run(&args.inspect, &context(args, line)?).await,
        Some(Command::Badge(badge)) => badge::run(badge, &context(args, line)?).await,
        Some(Command::Verify(verify)) => verify::run(verify, &context(args, line)?).await,
        Some(Command::Diff(diff)) => diff::run(diff, &context(args, line)?).await,
        Some(Command::Get(get)) => Box::pin(get::run(get, &context(args, line)?)).await,
        #[cfg(feature = "census")]
        Some(Command::Census(command)) => {
            Box::pin(census::run(command, &args.connection, &line)).await
        }
        Some(Command::Metadata(command)) => metadata::run(command, &context(args, line)?).await,
        Some(Command::Cache(command)) => local_commands::cache(command),
        Some(Command::Completions(shell)) => local_commands::completions(shell),
        Some(Command::Man(man)) => local_commands::man(man, Args::definition()),
        #[cfg(feature = "server")]
        Some(Command::Serve(serve)) => {
            serve::run(serve, &args.connection, &Args::definition()).await
        }
    }
}

/// Sets up a subcommand that reads repositories.
fn context(args: &Args, line: ProgressLine) -> CommandResult<CommandContext> {
    let (client, unusable) = args.connection.client()?;
    let uses_cache = !matches!(args.command, Some(Command::Verify(_)));
    Ok(CommandContext {
        client,
        unusable,
        line,
        definition: Args::definition,
        token_source: args.connection.token_source(),
        has_path: !matches!(args.command, Some(Command::Diff(_) | Command::Metadata(_))),
        uses_cache,
        keeps_headers: uses_cache && args.connection.cache().is_some(),
        has_printed: Cell::new(false),
        ends_with_page: Cell::new(false),
        explained: RefCell::default(),
    })
}
