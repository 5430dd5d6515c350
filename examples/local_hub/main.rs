//! Serves a folder as a Hub: `cargo run --example local_hub -- [FOLDER] [--port N]`.
//!
//! Stdout gets one line that can be put before a command, `HF_ENDPOINT=http://…`; Ctrl-C ends it.

mod hub;

use std::io::{self, Write};
use std::path::PathBuf;

use clap::Parser;
use hub::{LocalHub, load_folder};

/// Serve a folder of models as a Hub on this machine.
#[derive(Parser)]
struct Args {
    /// A tree of repos; fixtures or ordinary model folders.
    #[arg(default_value = "fixtures")]
    folder: PathBuf,
    /// The port to listen on instead of any free one.
    #[arg(long, default_value_t = 0)]
    port: u16,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> io::Result<()> {
    let args = Args::parse();
    let repos = load_folder(&args.folder)?;
    for repo in &repos {
        writeln!(io::stderr(), "{}", repo.id())?;
    }
    let hub = LocalHub::builder().repos(repos).port(args.port).start()?;
    writeln!(io::stdout(), "HF_ENDPOINT={}", hub.endpoint())?;
    io::stdout().flush()?;
    tokio::signal::ctrl_c().await
}
