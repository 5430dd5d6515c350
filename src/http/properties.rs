//! How properties are tested beside the code that has them.

use proptest::test_runner::{Config, RngSeed};

/// The same cases in every run, and no files written where one fails.
pub(crate) fn config(cases: u32) -> Config {
    Config {
        cases,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(0x5afe_7e45),
        ..Config::default()
    }
}
