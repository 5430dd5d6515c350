//! Durations on the command line.

use std::time::Duration;

/// Parses a duration: a number with the unit `us`, `ms`, `s` or `min`. A number alone is in milliseconds.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, &'static str> {
    let (number, unit) = text.split_at(text.find(char::is_alphabetic).unwrap_or(text.len()));
    let unit = match unit {
        "us" => 1e-6,
        "ms" | "" => 1e-3,
        "s" => 1.0,
        "min" => 60.0,
        _ => return Err("the units are `us`, `ms`, `s` and `min`"),
    };
    let number: f64 = number.trim().parse().map_err(|_| "not a number")?;
    Duration::try_from_secs_f64(number * unit).map_err(|_| "not a duration")
}
