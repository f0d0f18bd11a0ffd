//! Reads the envelope of a worker's frame in one pass: the raw text of each field, borrowed.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::error::{ProtocolError, quote};
use super::field::FromField;
use super::json::reason;
use super::names::{Field, FrameType};

/// The type of a frame and the raw JSON text of each known field.
pub(super) struct Envelope<'a> {
    pub(super) frame_type: FrameType,
    line: &'a [u8],
    values: FieldValues<'a>,
}

impl<'a> Envelope<'a> {
    pub(super) fn read(line: &'a [u8]) -> Result<Self, ProtocolError> {
        let text = str::from_utf8(line)
            .map_err(|error| ProtocolError::InvalidUtf8 { column: error.valid_up_to() + 1, quote: quote(line) })?;
        let object: FrameObject = serde_json::from_str(text).map_err(|error| json_error(&error, line))?;
        if let Some(field) = object.duplicate {
            return Err(ProtocolError::DuplicateField { field: field.name(), quote: quote(line) });
        }
        Ok(Self { frame_type: frame_type(&object.values, line)?, line, values: object.values })
    }

    /// A field that must be there. A `null` counts as a value, which only some types accept.
    pub(super) fn required<T: FromField<'a>>(&self, field: Field) -> Result<T, ProtocolError> {
        let raw = self.values.get(field).ok_or_else(|| ProtocolError::MissingField {
            frame_type: self.frame_type,
            field: field.name(),
            quote: quote(self.line),
        })?;
        self.convert(field, raw)
    }

    /// A field that may be absent; a `null` counts as absent.
    pub(super) fn optional<T: FromField<'a>>(&self, field: Field) -> Result<Option<T>, ProtocolError> {
        let raw = self.values.get(field).filter(|&raw| raw != "null");
        raw.map(|raw| self.convert(field, raw)).transpose()
    }

    fn convert<T: FromField<'a>>(&self, field: Field, raw: &'a str) -> Result<T, ProtocolError> {
        T::from_field(raw).ok_or_else(|| ProtocolError::WrongFieldType {
            frame_type: self.frame_type,
            field: field.name(),
            expected: T::EXPECTED,
            quote: quote(self.line),
        })
    }
}

fn frame_type(values: &FieldValues<'_>, line: &[u8]) -> Result<FrameType, ProtocolError> {
    let name = values.get(Field::Type).and_then(Cow::from_field);
    let name = name.ok_or_else(|| ProtocolError::MissingType { quote: quote(line) })?;
    let known = FrameType::ALL.into_iter().find(|known| known.name() == name);
    known.ok_or_else(|| ProtocolError::UnknownType { found: quote(name.as_bytes()), quote: quote(line) })
}

fn json_error(error: &serde_json::Error, line: &[u8]) -> ProtocolError {
    let quote = quote(line);
    // Every field takes any JSON value, so only the outermost value can be of a wrong type.
    if error.is_data() {
        return ProtocolError::NotAnObject { quote };
    }
    ProtocolError::InvalidJson { column: error.column(), reason: reason(error), quote }
}

/// One slot for each [`Field`], so that a frame is read without allocating.
#[derive(Default)]
struct FieldValues<'a>([Option<&'a str>; Field::ALL.len()]);

impl<'a> FieldValues<'a> {
    fn get(&self, field: Field) -> Option<&'a str> {
        self.0[field as usize]
    }

    fn insert(&mut self, field: Field, raw: &'a str) -> Option<&'a str> {
        self.0[field as usize].replace(raw)
    }
}

#[derive(Default)]
struct FrameObject<'a> {
    values: FieldValues<'a>,
    /// The first field that was given twice, which is an error: readers of JSON disagree on which of the two counts.
    duplicate: Option<Field>,
}

impl<'de> Deserialize<'de> for FrameObject<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(FrameVisitor)
    }
}

struct FrameVisitor;

impl<'de> Visitor<'de> for FrameVisitor {
    type Value = FrameObject<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<FrameObject<'de>, A::Error> {
        let mut object = FrameObject::default();
        // As raw text, because a name may hold half of a surrogate pair like any other string.
        while let Some(name) = map.next_key::<&RawValue>()? {
            let name: Option<Cow<'_, str>> = Cow::from_field(name.get());
            let Some(field) = name.and_then(|name| Field::ALL.into_iter().find(|field| field.name() == name)) else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            let raw: &'de RawValue = map.next_value()?;
            if object.values.insert(field, raw.get()).is_some() {
                object.duplicate.get_or_insert(field);
            }
        }
        Ok(object)
    }
}
