//! Formats of numbers, durations, sizes and booleans, and the bounds that several keys share.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use bytesize::ByteSize;

use super::format::{Scalar, string, wrong_type};
use super::text::{quote, toml_string};
use super::tree::{TomlNode, TomlValue};

pub(super) const KIB: u64 = 1 << 10;
pub(super) const MIB: u64 = 1 << 20;
pub(super) const GIB: u64 = 1 << 30;
pub(super) const TIB: u64 = 1 << 40;

/// Bound of processes, connections and calls: no machine runs more, so a larger number is a typing error.
pub(super) const MAX_LIVE: u64 = 1_000_000;
/// Bound of things that are only counted, not kept open.
pub(super) const MAX_COUNTED: u64 = 1_000_000_000;
/// gRPC counts a message's bytes in 32 bits, and many clients in a signed number.
pub(super) const MESSAGE_BYTES: RangeInclusive<u64> = KIB..=GIB;
/// No process needs less than a MiB, and no machine has more than 64 TiB.
pub(super) const MEMORY_BYTES: RangeInclusive<u64> = MIB..=64 * TIB;

/// A year, in humantime's sense. Far more than anybody waits, and so little that adding it to a
/// clock cannot overflow.
const LONGEST_TIME: Duration = Duration::from_hours(365 * 24 + 6);
/// For a wait that may be skipped.
pub(super) const ANY_TIME: RangeInclusive<Duration> = Duration::ZERO..=LONGEST_TIME;
/// For a wait that there must be. Timers count milliseconds, so anything shorter would be none.
pub(super) const SOME_TIME: RangeInclusive<Duration> = Duration::from_millis(1)..=LONGEST_TIME;
/// For a wait of which half must still be one.
pub(super) const HALVABLE_TIME: RangeInclusive<Duration> = Duration::from_millis(2)..=LONGEST_TIME;

/// A value of another format, or a word for no value.
pub(super) struct Or<S>(pub(super) &'static str, pub(super) S);

impl<T, S: Scalar<T>> Scalar<Option<T>> for Or<S> {
    fn parse(&self, node: &TomlNode, base: &Path) -> Result<Option<T>, String> {
        match node.text() {
            Some(text) if text == self.0 => Ok(None),
            // A limit is lifted with "none" and a feature is switched off; these are easily mixed up.
            Some(text @ ("none" | "off")) => Err(format!("{text:?} means nothing here: write {:?}", self.0)),
            _ => self.1.parse(node, base).map(Some),
        }
    }

    fn write(&self, value: &Option<T>) -> String {
        value.as_ref().map_or_else(|| toml_string(self.0), |value| self.1.write(value))
    }
}

/// A whole number.
pub(super) struct Integer(pub(super) RangeInclusive<u64>);

impl<T: FromStr + Display> Scalar<T> for Integer {
    fn parse(&self, node: &TomlNode, _: &Path) -> Result<T, String> {
        let TomlValue::Integer(number) = node.value else {
            return Err(wrong_type(node, "a whole number, without quotes"));
        };
        let text = number.map_or("beyond 64 bits".to_owned(), |number| number.to_string());
        let in_range = text.parse().is_ok_and(|number| self.0.contains(&number));
        let number = in_range.then(|| text.parse().ok()).flatten();
        number.ok_or_else(|| format!("must be from {} to {}, but is {text}", self.0.start(), self.0.end()))
    }

    /// Five digits and more are grouped by three.
    fn write(&self, value: &T) -> String {
        let digits = value.to_string();
        let is_grouped = digits.len() > 4;
        let mut text = String::new();
        for (index, digit) in digits.char_indices() {
            if is_grouped && index > 0 && (digits.len() - index).is_multiple_of(3) {
                text.push('_');
            }
            text.push(digit);
        }
        text
    }
}

/// A duration with its unit.
pub(super) struct Time(pub(super) RangeInclusive<Duration>);

impl Scalar<Duration> for Time {
    fn parse(&self, node: &TomlNode, _: &Path) -> Result<Duration, String> {
        if let Some(number) = bare_number(node) {
            return Err(no_unit(&format!("{number}s")));
        }
        let text = string(node, "a duration, like \"30s\"")?;
        let parsed = humantime::parse_duration(text).map_err(|_| {
            format!("{} is not a duration: write one like \"5s\", \"1m 30s\" or \"200ms\"", quote(text))
        })?;
        within(parsed, &self.0, show_duration)
    }

    fn write(&self, value: &Duration) -> String {
        toml_string(show_duration(*value))
    }
}

/// A number of bytes with its unit.
pub(super) struct Size(pub(super) RangeInclusive<u64>);

impl Scalar<u64> for Size {
    fn parse(&self, node: &TomlNode, _: &Path) -> Result<u64, String> {
        if let Some(number) = bare_number(node) {
            return Err(no_unit(&number.parse().map_or_else(|_| format!("{number}B"), show_size)));
        }
        let text = string(node, "a size, like \"4MiB\"")?;
        let parsed: ByteSize = text
            .parse()
            .map_err(|_| format!("{} is not a size: write one like \"512MiB\" or \"64KB\"", quote(text)))?;
        within(parsed.as_u64(), &self.0, show_size)
    }

    fn write(&self, value: &u64) -> String {
        toml_string(show_size(*value))
    }
}

/// The digits of a number without a unit, with or without quotes, if it is short enough to be meant.
fn bare_number(node: &TomlNode) -> Option<String> {
    match &node.value {
        TomlValue::Integer(Some(number @ 0..)) => Some(number.to_string()),
        TomlValue::Text(text) if (1..=20).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit()) => {
            Some(text.clone())
        }
        _ => None,
    }
}

fn no_unit(write: &str) -> String {
    format!("a bare number has no unit: write \"{write}\"")
}

/// A number from 0 to 1.
pub(super) struct Fraction;

impl Scalar<f64> for Fraction {
    fn parse(&self, node: &TomlNode, _: &Path) -> Result<f64, String> {
        let number = match node.value {
            TomlValue::Float(number) => number,
            TomlValue::Integer(Some(whole)) => f64::from(i32::try_from(whole).unwrap_or(i32::MAX)),
            _ => return Err(wrong_type(node, "a number, like 0.1, without quotes")),
        };
        within(number, &(0.0..=1.0), |number| format!("{number:?}"))
    }

    fn write(&self, value: &f64) -> String {
        format!("{value:?}")
    }
}

/// True or false.
pub(super) struct Boolean;

impl Scalar<bool> for Boolean {
    fn parse(&self, node: &TomlNode, _: &Path) -> Result<bool, String> {
        let TomlValue::Boolean(value) = node.value else {
            return Err(wrong_type(node, "true or false, without quotes"));
        };
        Ok(value)
    }

    fn write(&self, value: &bool) -> String {
        value.to_string()
    }
}

fn within<T: PartialOrd + Copy>(value: T, range: &RangeInclusive<T>, show: impl Fn(T) -> String) -> Result<T, String> {
    if range.contains(&value) {
        return Ok(value);
    }
    Err(format!("must be from {} to {}, but is {}", show(*range.start()), show(*range.end()), show(value)))
}

pub(super) fn show_duration(duration: Duration) -> String {
    humantime::format_duration(duration).to_string()
}

/// In the largest unit that loses nothing.
pub(super) fn show_size(bytes: u64) -> String {
    [("TiB", TIB), ("GiB", GIB), ("MiB", MIB), ("KiB", KIB)]
        .into_iter()
        .find(|(_, unit)| bytes >= *unit && bytes.is_multiple_of(*unit))
        .map_or_else(|| format!("{bytes}B"), |(name, unit)| format!("{}{name}", bytes / unit))
}
