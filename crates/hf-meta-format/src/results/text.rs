//! Human-readable text: numbers, sizes and durations, and escaped text from files and servers.

use std::time::Duration;

/// Escapes control characters, terminal escape sequences, bidirectional marks and invisible characters, so that text
/// from a file or a server is safe to print.
///
/// ```
/// assert_eq!(hf_meta_format::results::text::escape("red: \u{1b}[31m"), "red: \\u{1b}[31m");
/// ```
pub fn escape(text: &str) -> String {
    // `escape_debug` also escapes these, although they are harmless in a terminal.
    let quotes = ['\'', '"', '\\'];
    text.split_inclusive(quotes).fold(String::with_capacity(text.len()), |mut shown, part| {
        let plain = part.trim_end_matches(quotes);
        shown.extend(plain.escape_debug());
        shown + &part[plain.len()..]
    })
}

/// Formats a number with thousands separators, as in `176,247,271,424`.
pub fn thousands(number: u64) -> String {
    let mut shown = number.to_string();
    for end in (1..shown.len()).rev().skip(2).step_by(3) {
        shown.insert(end, ',');
    }
    shown
}

/// The units of sizes.
const BYTES: [&str; 7] = [" B", " kB", " MB", " GB", " TB", " PB", " EB"];

/// Formats a size in bytes with decimal units, as the Hub does: `352.5 GB`.
pub fn bytes(number: u64) -> String {
    // 999,950 bytes are 1.0 MB, not 1000.0 kB.
    let (size, unit) = unit(number, 10, &BYTES);
    let tenths = rounded(number, 10, size);
    match size {
        1 => format!("{number}{unit}"),
        _ => format!("{}.{}{unit}", tenths / 10, tenths % 10),
    }
}

/// Returns the size and the name of the smallest unit that leaves at most three digits before the point, after rounding
/// to a fraction of `1 / scale`. The last unit has no limit.
fn unit<'u>(number: u64, scale: u128, units: &[&'u str]) -> (u128, &'u str) {
    let mut found = (1, units[0]);
    for unit in &units[1..] {
        if rounded(number, scale, found.0) >= 1_000 * scale {
            found = (found.0 * 1_000, unit);
        }
    }
    found
}

/// Returns `number / size`, scaled and rounded half up.
fn rounded(number: u64, scale: u128, size: u128) -> u128 {
    (u128::from(number) * scale + size / 2) / size
}

/// Formats a number with at most three significant digits, as in `999`, `7.62B`, `137M` or `1.03T`.
///
/// The number is rounded half up, and trailing zeros are dropped: 7,000,000,000 is `7B`.
pub fn short(number: u64) -> String {
    three_digits(number, &["", "K", "M", "B", "T"])
}

/// Formats a size in bytes with at most three significant digits, as in `352 GB`; see [`short`].
pub fn short_bytes(number: u64) -> String {
    three_digits(number, &BYTES)
}

/// Formats a number in the smallest unit that leaves at most three digits before the point. The last unit has no
/// limit.
fn three_digits(number: u64, units: &[&str]) -> String {
    let (size, unit) = unit(number, 1, units);
    let fits = |scale: &u128| rounded(number, *scale, size) < 1_000;
    let scale = [100, 10].into_iter().find(fits).unwrap_or(1);
    let parts = rounded(number, scale, size);
    let decimals = scale.ilog10() as usize;
    let digits = format!("{}.{:0decimals$}", parts / scale, parts % scale);
    let digits = digits.trim_end_matches('0').trim_end_matches('.');
    format!("{digits}{unit}")
}

/// Formats a parameter count the way model names do: in whole billions or millions, rounded down (`3B`, `400M`), or
/// in trillions, rounded to one decimal (`1.6T`).
pub fn size_of_model(parameters: u64) -> String {
    if parameters >= 1_000_000_000_000 {
        let tenths = (parameters / 10_000_000_000 + 5) / 10;
        return format!("{}.{}T", thousands(tenths / 10), tenths % 10);
    }
    match (parameters / 1_000_000_000, parameters / 1_000_000) {
        (0, 0) => parameters.to_string(),
        (0, millions) => format!("{millions}M"),
        (billions, _) => format!("{billions}B"),
    }
}

/// Formats a fraction of a whole as a percentage, as in `33.33 %` or `< 0.01 %`.
pub fn share(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "-".to_owned();
    }
    match rounded(part, 10_000, whole.into()) {
        0 if part > 0 => "< 0.01 %".to_owned(),
        10_000 if part < whole => "> 99.99 %".to_owned(),
        hundredths => format!("{}.{:02} %", hundredths / 100, hundredths % 100),
    }
}

/// Formats a duration in its two largest units, as in `8 s`, `4 min 50 s` or `2 h 5 min`, rounded up to seconds.
pub fn duration(duration: Duration) -> String {
    let seconds = duration.as_secs().saturating_add(u64::from(duration.subsec_nanos() > 0));
    match (seconds / 3_600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds} s"),
        (0, minutes, 0) => format!("{minutes} min"),
        (0, minutes, seconds) => format!("{minutes} min {seconds} s"),
        (hours, 0, _) => format!("{} h", thousands(hours)),
        (hours, minutes, _) => format!("{} h {minutes} min", thousands(hours)),
    }
}

/// Parses a positive number of seconds.
///
/// # Errors
///
/// Returns the reason if the text is not a positive number, or too large for a duration.
pub fn parse_seconds(text: &str) -> Result<Duration, &'static str> {
    let seconds = text.parse().map_err(|_| "not a number")?;
    match Duration::try_from_secs_f64(seconds) {
        Ok(timeout) if !timeout.is_zero() => Ok(timeout),
        Err(_) if seconds > 0.0 => Err("too many seconds"),
        _ => Err("must be a positive number of seconds"),
    }
}

/// Formats a number with its noun, as in `1 file` or `72 files`.
pub fn counted(number: u64, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", thousands(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_at_most_two_units() {
        for (millis, expected) in [
            (0, "0 s"),
            (7_001, "8 s"),
            (59_999, "1 min"),
            (289_500, "4 min 50 s"),
            (7_200_000, "2 h"),
            (7_500_000, "2 h 5 min"),
        ] {
            assert_eq!(duration(Duration::from_millis(millis)), expected);
        }
        assert_eq!(duration(Duration::MAX), "5,124,095,576,030,431 h");
    }

    #[test]
    fn a_number_of_seconds_is_positive() {
        assert_eq!(parse_seconds("1.5"), Ok(Duration::from_millis(1_500)));
        for text in ["", "x", "0", "-1", "NaN", "inf", "1e300"] {
            assert!(parse_seconds(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_of_models_are_rounded_down() {
        let cases = [
            (0, "0"),
            (999_999, "999999"),
            (400_123_456, "400M"),
            (999_999_999, "999M"),
            (3_945_678_912, "3B"),
            (684_531_386_000, "684B"),
            (999_999_999_999, "999B"),
            (1_026_879_376_368, "1.0T"),
            (1_598_839_674_782, "1.6T"),
            (u64::MAX, "18,446,744.1T"),
        ];
        for (parameters, expected) in cases {
            assert_eq!(size_of_model(parameters), expected);
        }
    }

    #[test]
    fn control_characters_and_invisible_characters_are_escaped() {
        let cases = [
            ("h.0.ln_1.weight", "h.0.ln_1.weight"),
            ("it's \"ü\" \\ 模型", "it's \"ü\" \\ 模型"),
            ("\\\"''", "\\\"''"),
            ("e\u{301} पैरामीटर", "e\u{301} पैरामीटर"),
            ("\u{301}", "\\u{301}"),
            ("\u{1b}[2J", "\\u{1b}[2J"),
            ("a\nb\r\t\0", "a\\nb\\r\\t\\0"),
            ("\u{9b}31m", "\\u{9b}31m"),
            ("\u{202e}gnp.exe\u{2066}", "\\u{202e}gnp.exe\\u{2066}"),
            ("a\u{200b}b\u{feff}", "a\\u{200b}b\\u{feff}"),
        ];
        for (text, shown) in cases {
            assert_eq!(escape(text), shown);
        }
    }

    #[test]
    fn numbers_and_bytes_are_formatted() {
        let numbers =
            [(0, "0"), (999, "999"), (1_000, "1,000"), (176_247_271_424, "176,247,271,424")];
        for (number, shown) in numbers {
            assert_eq!(thousands(number), shown);
        }
        assert_eq!(thousands(u64::MAX), "18,446,744,073,709,551,615");
        let sizes = [
            (0, "0 B"),
            (999, "999 B"),
            (1_000, "1.0 kB"),
            (14_283, "14.3 kB"),
            (999_949, "999.9 kB"),
            (999_950, "1.0 MB"),
            (352_494_542_848, "352.5 GB"),
            (999_950_000_000_000_000, "1.0 EB"),
            (u64::MAX, "18.4 EB"),
        ];
        for (number, shown) in sizes {
            assert_eq!(bytes(number), shown);
        }
    }

    #[test]
    fn short_numbers_have_at_most_three_digits() {
        let numbers = [
            (0, "0"),
            (7, "7"),
            (100, "100"),
            (999, "999"),
            (1_000, "1K"),
            (9_994, "9.99K"),
            (9_995, "10K"),
            (99_950, "100K"),
            (999_499, "999K"),
            (999_500, "1M"),
            (137_022_720, "137M"),
            (7_000_000_000, "7B"),
            (7_615_616_512, "7.62B"),
            (20_739_117_584, "20.7B"),
            (176_247_271_424, "176B"),
            (999_500_000_000, "1T"),
            (1_026_470_731_056, "1.03T"),
            (u64::MAX, "18446744T"),
        ];
        for (number, shown) in numbers {
            assert_eq!(short(number), shown);
        }
        let sizes = [
            (0, "0 B"),
            (999, "999 B"),
            (15_231_233_024, "15.2 GB"),
            (352_494_542_848, "352 GB"),
            (999_500, "1 MB"),
            (u64::MAX, "18.4 EB"),
        ];
        for (number, shown) in sizes {
            assert_eq!(short_bytes(number), shown);
        }
    }

    #[test]
    fn a_share_is_never_rounded_to_nothing_or_all() {
        let cases = [
            (0, 0, "-"),
            (0, 7, "0.00 %"),
            (7, 7, "100.00 %"),
            (1, 3, "33.33 %"),
            (514, 124_697_947, "< 0.01 %"),
            (124_697_433, 124_697_947, "> 99.99 %"),
            (u64::MAX, u64::MAX, "100.00 %"),
        ];
        for (part, whole, shown) in cases {
            assert_eq!(share(part, whole), shown);
        }
    }

    #[test]
    fn nouns_are_formatted() {
        assert_eq!(counted(1, "shard"), "1 shard");
        assert_eq!(counted(1_000, "shard"), "1,000 shards");
    }
}
