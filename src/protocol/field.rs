//! The types of fields of worker frames, each read from the field's raw JSON text.

use std::borrow::Cow;
use std::fmt;

use memchr::memchr;
use serde::de::{Deserializer, Visitor};
use serde_json::value::RawValue;

/// Type of a field. The raw text is always one valid JSON value without surrounding space.
pub(super) trait FromField<'a>: Sized {
    /// Completes the sentence "the field must be …".
    const EXPECTED: &'static str;

    fn from_field(raw: &'a str) -> Option<Self>;
}

/// Raw JSON text, as it stands.
impl<'a> FromField<'a> for &'a str {
    const EXPECTED: &'static str = "a JSON value";

    fn from_field(raw: &'a str) -> Option<Self> {
        Some(raw)
    }
}

/// Any JSON string, borrowed if it has no escapes.
impl<'a> FromField<'a> for Cow<'a, str> {
    const EXPECTED: &'static str = "a string";

    fn from_field(raw: &'a str) -> Option<Self> {
        let inner = raw.strip_prefix('"')?.strip_suffix('"')?;
        if memchr(b'\\', inner.as_bytes()).is_none() {
            return Some(Cow::Borrowed(inner));
        }
        serde_json::Deserializer::from_str(raw).deserialize_bytes(LossyString).ok().map(Cow::Owned)
    }
}

/// Reads a string as bytes, because JSON can escape half of a surrogate pair, which no Rust string can hold. Python's encoder
/// does so for undecodable bytes in an error text, which is no protocol error.
struct LossyString;

impl Visitor<'_> for LossyString {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_bytes<E>(self, bytes: &[u8]) -> Result<String, E> {
        Ok(String::from_utf8_lossy(bytes).into_owned())
    }
}

/// A text that some workers write as a number: a version `2`, a code `500`.
pub(super) struct TextOrNumber<'a>(pub(super) Cow<'a, str>);

impl<'a> FromField<'a> for TextOrNumber<'a> {
    const EXPECTED: &'static str = "a string or a number";

    fn from_field(raw: &'a str) -> Option<Self> {
        let number = || f64::from_field(raw).map(|_| Cow::Borrowed(raw));
        Cow::from_field(raw).or_else(number).map(Self)
    }
}

impl<'a> FromField<'a> for bool {
    const EXPECTED: &'static str = "true or false";

    fn from_field(raw: &'a str) -> Option<Self> {
        raw.parse().ok()
    }
}

impl<'a> FromField<'a> for f64 {
    const EXPECTED: &'static str = "a number";

    fn from_field(raw: &'a str) -> Option<Self> {
        raw.parse().ok().filter(|number: &f64| number.is_finite())
    }
}

/// Also takes `5.0`, which is how languages without integers may write 5.
impl<'a> FromField<'a> for u64 {
    const EXPECTED: &'static str = "a whole number, not negative";

    fn from_field(raw: &'a str) -> Option<Self> {
        raw.parse().ok().or_else(|| whole(f64::from_field(raw)?))
    }
}

impl<'a> FromField<'a> for u32 {
    const EXPECTED: &'static str = u64::EXPECTED;

    fn from_field(raw: &'a str) -> Option<Self> {
        u64::from_field(raw)?.try_into().ok()
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the filter leaves whole numbers in range")]
fn whole(number: f64) -> Option<u64> {
    /// Up to 2 to the power of 53 a float holds every whole number.
    const MAX_EXACT: f64 = 9_007_199_254_740_992.0;
    Some(number)
        .filter(|number| number.fract() == 0.0 && (0.0..=MAX_EXACT).contains(number))
        .map(|number| number as u64)
}

impl<'a> FromField<'a> for Vec<Cow<'a, str>> {
    const EXPECTED: &'static str = "an array of strings";

    fn from_field(raw: &'a str) -> Option<Self> {
        let items: Vec<&RawValue> = serde_json::from_str(raw).ok()?;
        items.into_iter().map(|item| Cow::from_field(item.get())).collect()
    }
}
