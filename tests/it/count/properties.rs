//! Properties for any input: no panic, errors of bounded length, and values that are equal after a round trip.

mod addresses;
mod count_paths;
mod hostile;
mod packed_models;
mod values;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, RngSeed};

/// A configuration with the same cases in every run, which writes no files.
pub(crate) fn config(cases: u32) -> Config {
    Config {
        cases,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(0x5afe_7e45),
        ..Config::default()
    }
}

/// Returns whether a path stays in the folder it is joined to, by the rules of any system.
fn stays_inside(path: &str) -> bool {
    !path.contains(['\\', ':'])
        && !path.contains(char::is_control)
        && path.split('/').all(|part| !matches!(part, "" | "." | ".."))
}

/// Generates safe and unsafe names.
fn shard_name() -> impl Strategy<Value = String> {
    let pieces = ["a", "7b", "..", ".", "/", "\\", ":", "%2e%2e", "\0", "\u{85}", "ü", "C:", " "];
    let pieces: Vec<_> = pieces.into_iter().map(str::to_owned).collect();
    vec(select(pieces), 0..5).prop_map(|pieces| format!("{}x.safetensors", pieces.concat()))
}
