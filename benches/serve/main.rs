//! Throughput, memory and robustness of the badge service:
//! `cargo bench -p hf-meta-cli --bench serve -- [--rate] [--memory] [--hostile] [--soak MINUTES]`.
//!
//! The rate is measured for a known badge on one core, in turns with nginx that serves the same bytes as a static file
//! on the same core. `wrk` on the other cores makes the requests; both programs have to be installed. The memory of the
//! process is measured while it serves more repositories than its memory can hold. Hostile repositories and clients
//! are computed; `--binary` repeats the attacks on another build, for a comparison. Linux only.

mod hostile;
mod memory;
#[expect(dead_code, reason = "models of all sizes are for other measurements")]
#[path = "../network/mod.rs"]
mod network;
mod process;
mod rate;
mod soak;

use std::error::Error;

use clap::Parser;
use hf_meta_testing::File;

type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

/// Measure the badge service.
#[derive(Parser)]
#[expect(clippy::struct_excessive_bools, reason = "a flag for each measurement")]
struct Args {
    /// Measure the rate of a known badge; everything is measured if no measurement is chosen.
    #[arg(long)]
    rate: bool,
    /// Measure the memory.
    #[arg(long)]
    memory: bool,
    /// Measure the effects of hostile repositories and clients.
    #[arg(long)]
    hostile: bool,
    /// Run mixed load for some minutes, with faults and hostile repositories.
    #[arg(long, value_name = "MINUTES")]
    soak: Option<u64>,
    /// Another build of the command.
    #[arg(long)]
    binary: Option<String>,
    /// Number of measurements per server, in turns; the median is reported.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Duration of each measurement of a rate, in seconds.
    #[arg(long, default_value_t = 5)]
    seconds: u32,
    /// Number of concurrent connections.
    #[arg(long, default_value_t = 64)]
    connections: usize,
    /// Number of requests of the memory measurement.
    #[arg(long, default_value_t = 1_000_000)]
    requests: usize,
    /// Number of distinct repositories of the memory measurement.
    #[arg(long, default_value_t = 100_000)]
    repos: usize,
    /// Number of shards of a hostile repository.
    #[arg(long, default_value_t = 150)]
    shards: usize,
    /// Number of tensors per shard of a hostile repository.
    #[arg(long, default_value_t = 15_667)]
    tensors: usize,
    /// Added by cargo.
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> Result<()> {
    let args = Args::parse();
    if let Some(minutes) = args.soak {
        return soak::soak(&args, minutes);
    }
    let all = !(args.rate || args.memory || args.hostile);
    if all || args.rate {
        rate::rate(&args)?;
    }
    if all || args.memory {
        memory::memory(&args)?;
    }
    if all || args.hostile {
        hostile::hostile(&args)?;
    }
    Ok(())
}

fn weights() -> File {
    let header = br#"{"x":{"dtype":"F16","shape":[1000],"data_offsets":[0,2000]}}"#;
    let head = [&(header.len() as u64).to_le_bytes(), &header[..]].concat();
    let size = head.len() as u64 + 2_000;
    File::padded(head, size)
}
