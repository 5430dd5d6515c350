//! The command line. Data goes to stdout, everything else to stderr; nothing that came from a file
//! or a server reaches a terminal unescaped.

mod args;
mod badge;
mod cache;
mod columns;
mod connection;
mod diff;
mod explain;
mod json;
mod log;
mod progress;
mod render;
mod repo_arg;
mod report;
#[cfg(feature = "server")]
mod serve;
mod session;
mod show;
mod style;
mod tree;
mod verify;

use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

use self::args::{Args, Command};
use self::progress::Bars;
use self::report::Outcome;
use self::session::Session;

pub(crate) fn main() -> ExitCode {
    match run(&Args::read()) {
        Ok(outcome) => ExitCode::from(outcome as u8),
        // Whoever reads the output has seen enough, as in `hf-meta … | head`.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(anstream::stderr(), "error: {error}");
            ExitCode::from(Outcome::Failed as u8)
        }
    }
}

fn run(args: &Args) -> io::Result<Outcome> {
    let client = match args.connection.client() {
        Ok(client) => client,
        Err(error) => {
            anstream::stderr().write_all(report::setup_error(&error).as_bytes())?;
            return Ok(Outcome::from(&error));
        }
    };
    let session = Session { client, bars: Bars::default() };
    log::init(args.connection.verbose, &session.bars);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(dispatch(args, &session))
}

async fn dispatch(args: &Args, session: &Session) -> io::Result<Outcome> {
    match &args.command {
        None => show::run(&args.show, session).await,
        Some(Command::Badge(args)) => badge::run(args, session).await,
        Some(Command::Verify(args)) => verify::run(args, session).await,
        Some(Command::Diff(args)) => diff::run(args, session).await,
        Some(Command::Cache(args)) => cache::run(args),
        #[cfg(feature = "server")]
        Some(Command::Serve(serve)) => serve::run(serve, &args.connection).await,
    }
}
