//! Configuration of the property tests in `src`.

use proptest::test_runner::{Config, RngSeed};

/// Returns a configuration with a fixed seed. Failing cases are printed, not written to a file.
pub(crate) fn config(cases: u32) -> Config {
    Config {
        cases,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(0x5afe_7e45),
        ..Config::default()
    }
}
