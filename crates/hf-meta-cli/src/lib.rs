//! The command-line interface. It prints data to stdout and everything else to stderr. Text from files and servers is
//! escaped before it is printed.
//!
//! Each subcommand has a module with its options and a `run` function. Subcommands that read repositories use
//! [`CommandContext::for_each`], which reads them, reports errors and combines exit codes. Tables are lists of
//! [columns](table::Column).

mod args;
mod badge;
mod cache;
#[cfg(feature = "census")]
mod census;
mod connection;
mod context;
mod diff;
mod error_report;
mod exit;
mod hints;
mod inspect;
mod json;
mod log;
mod output;
mod packaging;
mod progress;
mod repo_arg;
mod repo_list;
mod sarif;
#[cfg(feature = "server")]
mod serve;
mod style;
mod table;
mod terminal;
mod verify;
mod views;

use std::ffi::OsString;
use std::io::ErrorKind;

use self::args::{Args, Command};
use self::context::CommandContext;
use self::error_report::ErrorReport;
use self::exit::{CommandError, ExitStatus, failed_to};
use self::progress::ProgressBars;

/// Runs the command and returns its exit code. The first argument is the program name.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> u8 {
    let args = Args::parse_or_exit(arguments);
    match run(&args) {
        Ok(status) => status as u8,
        // The reader of stdout has closed the pipe, as in `hf-meta … | head`.
        Err(CommandError::Io(error)) if error.kind() == ErrorKind::BrokenPipe => {
            ExitStatus::Success as u8
        }
        Err(error) => {
            let _ =
                ErrorReport::for_command(&error, args.connection.token_source().as_deref()).print();
            ExitStatus::from(&error) as u8
        }
    }
}

fn run(args: &Args) -> Result<ExitStatus, CommandError> {
    let bars = ProgressBars::new(args.output.quiet);
    log::init(args.connection.verbose, args.output.quiet, &bars);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(failed_to("start threads"))?;
    let status = runtime.block_on(dispatch(args, bars));
    // Do not wait for threads that are blocked on a disk or a pipe, possibly forever.
    runtime.shutdown_background();
    status
}

async fn dispatch(args: &Args, bars: ProgressBars) -> Result<ExitStatus, CommandError> {
    let context = || {
        end_on_interrupt(bars.clone());
        let token_source = args.connection.token_source();
        let is_quiet = args.output.quiet;
        let client = args.connection.client();
        let bars = bars.clone();
        client.map(|client| CommandContext { client, bars, token_source, is_quiet })
    };
    match &args.command {
        None => args.inspect.color.apply(),
        Some(Command::Verify(verify)) => verify.color.apply(),
        Some(Command::Diff(diff)) => diff.color.apply(),
        _ => {}
    }
    Ok(match &args.command {
        None => inspect::run(&args.inspect, &context()?).await?,
        Some(Command::Badge(badge)) => badge::run(badge, &context()?).await?,
        Some(Command::Verify(verify)) => verify::run(verify, &context()?).await?,
        Some(Command::Diff(diff)) => diff::run(diff, &context()?).await?,
        #[cfg(feature = "census")]
        Some(Command::Census(census)) => {
            end_on_interrupt(bars.clone());
            Box::pin(census::run(census, &args.connection, &bars)).await?
        }
        Some(Command::Cache(cache)) => cache::run(cache).map_err(failed_to("write to stdout"))?,
        Some(Command::Completions(completions)) => {
            packaging::completions(completions, Args::definition())
                .map_err(failed_to("write to stdout"))?
        }
        Some(Command::Man(man)) => {
            packaging::man(man, Args::definition()).map_err(failed_to("write to stdout"))?
        }
        #[cfg(feature = "server")]
        Some(Command::Serve(serve)) => serve::run(serve, &args.connection).await?,
        #[cfg(not(feature = "server"))]
        Some(Command::Serve(_)) => return Err(CommandError::NoServer),
    })
}

/// Removes the progress bars on Ctrl-C, and ends the process by the signal, so that a surrounding shell loop ends,
/// too.
fn end_on_interrupt(bars: ProgressBars) {
    tokio::spawn(async move {
        if tokio::signal::ctrl_c().await.is_ok() {
            bars.hidden_while(|| {
                let _ =
                    signal_hook::low_level::emulate_default_handler(signal_hook::consts::SIGINT);
                std::process::exit(130);
            });
        }
    });
}
