//! Values with a unit: bytes, shares, durations, counts.
//!
//! Called by `options` for both the command line and the TOML file. Parsing is strict and total: whatever is
//! not written as the documentation says is refused with a sentence that says what can be written. No I/O.

use std::ops::RangeInclusive;
use std::time::Duration;

/// An amount of room on a disk.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Amount {
    /// That many bytes.
    Bytes(u64),
    /// A share of the disk's size, in (0, 100].
    Percent(f64),
}

impl Amount {
    /// This amount in bytes on a disk of `size_bytes`; a share is rounded down.
    pub fn of_bytes(self, size_bytes: u64) -> u64 {
        match self {
            Amount::Bytes(bytes) => bytes,
            Amount::Percent(percent) if percent >= 100.0 => size_bytes,
            Amount::Percent(percent) => {
                // A float-to-integer cast saturates, so no value of `percent` can wrap.
                ((size_bytes as f64 / 100.0 * percent) as u64).min(size_bytes)
            }
        }
    }
}

const AMOUNT_FORM: &str = "write an integer with K, M, G, T, KiB, MiB, GiB or TiB, or a share of the disk such as 95%";
const DURATION_FORM: &str =
    "write a duration such as 500ms, 5s, 10m or 1h; a bare number is seconds, and 0 switches it off";
const PERCENT_FORM: &str = "write a percentage above 0 and up to 100, such as 95";

/// The longest duration taken: it stays far from every overflow of a clock.
const DURATION_MAX: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// Powers of 1024 by their suffix; both spellings mean the same.
const BYTE_UNITS: &[(&str, u32)] =
    &[("KiB", 10), ("MiB", 20), ("GiB", 30), ("TiB", 40), ("K", 10), ("M", 20), ("G", 30), ("T", 40)];

/// Parses bytes or a share: `1073741824`, `64MiB`, `500G`, `95%`. `0%` is `Bytes(0)`.
pub fn parse_amount(text: &str) -> Result<Amount, String> {
    if let Some(share) = text.strip_suffix('%') {
        return match decimal(share) {
            Some(0.0) => Ok(Amount::Bytes(0)),
            Some(percent) if percent <= 100.0 => Ok(Amount::Percent(percent)),
            Some(_) => Err("a share cannot be more than 100%".to_string()),
            None => Err(AMOUNT_FORM.to_string()),
        };
    }
    let (digits, shift) =
        BYTE_UNITS.iter().find_map(|(unit, shift)| Some((text.strip_suffix(unit)?, *shift))).unwrap_or((text, 0));
    let number = integer(digits, AMOUNT_FORM)?;
    number.checked_mul(1_u64 << shift).map(Amount::Bytes).ok_or_else(|| "it is more than 2^64 bytes".to_string())
}

/// Parses an amount that must hold something, such as a limit.
pub fn parse_amount_above_zero(text: &str) -> Result<Amount, String> {
    match parse_amount(text)? {
        Amount::Bytes(0) => Err("nothing could be stored; write more than 0".to_string()),
        amount => Ok(amount),
    }
}

/// Parses a duration: `500ms`, `5s`, `10m`, `1h`, or a bare number of seconds.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let (digits, unit_ms) = if let Some(digits) = text.strip_suffix("ms") {
        (digits, 1)
    } else if let Some(digits) = text.strip_suffix('s') {
        (digits, 1_000)
    } else if let Some(digits) = text.strip_suffix('m') {
        (digits, 60_000)
    } else if let Some(digits) = text.strip_suffix('h') {
        (digits, 3_600_000)
    } else {
        (text, 1_000)
    };
    integer(digits, DURATION_FORM)?
        .checked_mul(unit_ms)
        .map(Duration::from_millis)
        .filter(|duration| *duration <= DURATION_MAX)
        .ok_or_else(|| "it is longer than 100 years".to_string())
}

/// Parses a percentage in (0, 100]: `95`, `92.5`, `95%`.
pub fn parse_percent(text: &str) -> Result<f64, String> {
    decimal(text.strip_suffix('%').unwrap_or(text))
        .filter(|percent| *percent > 0.0 && *percent <= 100.0)
        .ok_or_else(|| PERCENT_FORM.to_string())
}

/// Parses a plain integer within `range`.
pub fn parse_count(text: &str, range: RangeInclusive<usize>) -> Result<usize, String> {
    let form = format!("write an integer from {} to {}", range.start(), range.end());
    let number = integer(text, &form)?;
    usize::try_from(number).ok().filter(|number| range.contains(number)).ok_or(form)
}

/// Digits only: no sign, no space, no separator.
fn integer(text: &str, form: &str) -> Result<u64, String> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(form.to_string());
    }
    text.parse().map_err(|_| "the number is too large".to_string())
}

/// Digits with at most one point between digits: no sign, no exponent, no `nan`, no `inf`.
fn decimal(text: &str) -> Option<f64> {
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    let well_formed = match text.split_once('.') {
        Some((whole, fraction)) => digits(whole) && digits(fraction),
        None => digits(text),
    };
    if !well_formed {
        return None;
    }
    text.parse().ok().filter(|number: &f64| number.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn amounts() {
        let table = [
            ("0", Amount::Bytes(0)),
            ("1073741824", Amount::Bytes(1 << 30)),
            ("4K", Amount::Bytes(4096)),
            ("4KiB", Amount::Bytes(4096)),
            ("3M", Amount::Bytes(3 << 20)),
            ("64MiB", Amount::Bytes(64 << 20)),
            ("500G", Amount::Bytes(500 << 30)),
            ("2TiB", Amount::Bytes(2 << 40)),
            ("18446744073709551615", Amount::Bytes(u64::MAX)),
            ("95%", Amount::Percent(95.0)),
            ("0.5%", Amount::Percent(0.5)),
            ("100%", Amount::Percent(100.0)),
            ("0%", Amount::Bytes(0)),
        ];
        for (text, amount) in table {
            assert_eq!(parse_amount(text), Ok(amount), "{text}");
        }
    }

    #[test]
    fn amounts_refused() {
        let table = [
            "",
            "%",
            "K",
            "-1",
            "+1",
            "1 G",
            " 1",
            "1.5G",
            "1e9",
            "0x10",
            "1KB",
            "1k",
            "1B",
            "1P",
            "101%",
            "-5%",
            "nan%",
            "inf%",
            "1e1%",
            ".5%",
            "5.%",
            "1.2.3%",
            "95%%",
            "18446744073709551616",
            "16777216T",
            "99999999999999999999G",
            "１",
        ];
        for text in table {
            assert!(parse_amount(text).is_err(), "{text}");
        }
        assert!(parse_amount_above_zero("0").is_err());
        assert!(parse_amount_above_zero("0%").is_err());
    }

    #[test]
    fn amounts_of_a_disk() {
        assert_eq!(Amount::Bytes(7).of_bytes(3), 7);
        assert_eq!(Amount::Percent(95.0).of_bytes(1000), 950);
        assert_eq!(Amount::Percent(100.0).of_bytes(u64::MAX), u64::MAX);
        assert_eq!(Amount::Percent(2.0).of_bytes(0), 0);
        assert_eq!(Amount::Percent(50.0).of_bytes(1 << 60), 1 << 59);
    }

    #[test]
    fn durations() {
        let table =
            [("0", 0), ("0ms", 0), ("500ms", 500), ("5", 5_000), ("5s", 5_000), ("10m", 600_000), ("1h", 3_600_000)];
        for (text, ms) in table {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for text in [
            "",
            "s",
            "ms",
            "-1s",
            "1.5s",
            "1d",
            "5 s",
            "nan",
            "inf",
            "1h30m",
            "5S",
            "99999999999h",
            "18446744073709551615",
            "18446744073709551616ms",
            "876001h",
        ] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn percents_and_counts() {
        assert_eq!(parse_percent("95"), Ok(95.0));
        assert_eq!(parse_percent("92.5%"), Ok(92.5));
        for text in ["", "0", "-1", "100.1", "nan", "inf", "9 5"] {
            assert!(parse_percent(text).is_err(), "{text}");
        }
        assert_eq!(parse_count("2", 2..=1024), Ok(2));
        for text in ["", "1", "1025", "-3", "2.0", "99999999999999999999"] {
            assert!(parse_count(text, 2..=1024).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn parsing_never_panics(text in "\\PC*") {
            let _ = parse_amount(&text);
            let _ = parse_duration(&text);
            let _ = parse_percent(&text);
            let _ = parse_count(&text, 1..=64);
        }

        #[test]
        fn near_misses_never_panic(text in "[0-9]{0,25}(\\.[0-9]{0,3})?(K|M|G|T|KiB|TiB|ms|s|m|h|%)?") {
            let _ = parse_duration(&text);
            if let Ok(amount) = parse_amount(&text) {
                prop_assert!(matches!(amount, Amount::Bytes(_)) || amount.of_bytes(1 << 50) <= 1 << 50);
            }
        }
    }
}
