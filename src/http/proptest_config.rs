//! Configuration of the property tests next to the code.

use proptest::test_runner::{Config, RngSeed};

/// Returns a configuration with a fixed seed. A failing case is printed and not written to a file.
pub(crate) fn config(cases: u32) -> Config {
    Config {
        cases,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(0x5afe_7e45),
        ..Config::default()
    }
}
