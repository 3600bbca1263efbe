//! SQLite's values as plain JSON, both ways: what `POST /db/NAME/sql` takes and gives.
//!
//! | SQLite | JSON |
//! |---|---|
//! | NULL | `null` |
//! | INTEGER | a number; outside the safe range of doubles a string, if strings were asked for |
//! | REAL | a number, always with a fraction or an exponent; infinities are `1e999` and `-1e999` |
//! | TEXT | a string |
//! | BLOB | `{"base64": "..."}` |
//!
//! On the way in `true` and `false` are 1 and 0, and a number is an INTEGER exactly if it has neither fraction nor exponent.

use std::borrow::Cow;

use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use highwater_sql::{ResultSet, Value};
use serde::ser::{SerializeMap, SerializeSeq};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;

/// Base64 as it leaves: with padding. On the way in padding may be missing.
pub(crate) const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The greatest integer up to which every integer is a double of its own: 2^53 - 1.
const SAFE_INTEGER_MAX: u64 = (1 << 53) - 1;

/// How integers that a double cannot hold are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Integers {
    /// As numbers, whatever the reader makes of them.
    #[default]
    Number,
    /// As strings, if their magnitude is above 2^53 - 1.
    String,
}

/// A value about to be written as plain JSON.
struct PlainValue<'a>(&'a Value, Integers);

impl Serialize for PlainValue<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Null => serializer.serialize_unit(),
            Value::Integer(number) => match self.1 {
                Integers::String if number.unsigned_abs() > SAFE_INTEGER_MAX => serializer.collect_str(number),
                _ => serializer.serialize_i64(*number),
            },
            Value::Real(number) => serialize_real(*number, serializer),
            Value::Text(text) => serializer.serialize_str(text),
            Value::Blob(bytes) => {
                let mut map = serializer.serialize_map(Some(1))?;
                map.serialize_entry("base64", &BASE64.encode(bytes))?;
                map.end()
            }
        }
    }
}

/// Writes a double. JSON has no infinities; a number too great for a double reads back as one in every parser that follows IEEE 754.
pub(crate) fn serialize_real<S: Serializer>(number: f64, serializer: S) -> Result<S::Ok, S::Error> {
    if number.is_finite() {
        return serializer.serialize_f64(number);
    }
    let text = if number.is_nan() {
        "null"
    } else if number > 0.0 {
        "1e999"
    } else {
        "-1e999"
    };
    let raw = RawValue::from_string(text.to_string()).map_err(serde::ser::Error::custom)?;
    raw.serialize(serializer)
}

struct PlainRow<'a>(&'a [Value], Integers);

impl Serialize for PlainRow<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut row = serializer.serialize_seq(Some(self.0.len()))?;
        for value in self.0 {
            row.serialize_element(&PlainValue(value, self.1))?;
        }
        row.end()
    }
}

struct PlainRows<'a>(&'a [Vec<Value>], Integers);

impl Serialize for PlainRows<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut rows = serializer.serialize_seq(Some(self.0.len()))?;
        for row in self.0 {
            rows.serialize_element(&PlainRow(row, self.1))?;
        }
        rows.end()
    }
}

/// One statement's result about to be written as plain JSON: `{"columns", "rows", "affected", "last_insert_rowid"}`.
pub(crate) struct PlainResult<'a>(pub(crate) &'a ResultSet, pub(crate) Integers);

impl Serialize for PlainResult<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(4))?;
        let columns: Vec<&str> = self.0.columns.iter().map(|column| column.name.as_str()).collect();
        map.serialize_entry("columns", &columns)?;
        map.serialize_entry("rows", &PlainRows(&self.0.rows, self.1))?;
        map.serialize_entry("affected", &self.0.affected)?;
        map.serialize_entry("last_insert_rowid", &self.0.last_insert_rowid)?;
        map.end()
    }
}

/// Reads one argument, from its text: whether a number is an INTEGER is a matter of how it is written. The error says what was found and what is allowed.
pub(crate) fn value_from_json(json: &RawValue) -> Result<Value, String> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Blob<'a> {
        #[serde(borrow)]
        base64: Cow<'a, str>,
    }
    let text = json.get();
    let unread = |error: serde_json::Error| format!("it does not read: {error}");
    match text.as_bytes()[0] {
        b'n' => Ok(Value::Null),
        b't' => Ok(Value::Integer(1)),
        b'f' => Ok(Value::Integer(0)),
        b'"' => serde_json::from_str(text).map(Value::Text).map_err(unread),
        b'{' => {
            let blob: Blob<'_> = serde_json::from_str(text)
                .map_err(|_| "an argument that is an object must be a blob, {\"base64\": \"...\"}".to_string())?;
            BASE64
                .decode(blob.base64.as_bytes())
                .map(Value::Blob)
                .map_err(|error| format!("the text of \"base64\" is not base64: {error}"))
        }
        b'[' => {
            Err("an argument cannot be an array; it is null, a number, a string, a boolean or {\"base64\": \"...\"}"
                .to_string())
        }
        _ if text.contains(['.', 'e', 'E']) => text
            .parse()
            .map(Value::Real)
            .map_err(|_| format!("the number {text:.40} is not a double")),
        _ => text.parse().map(Value::Integer).map_err(|_| {
            format!("the integer {text:.40} does not fit in SQLite's 64 bits; send it as a string, or as a real by writing it with a fraction")
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<Value, String> {
        value_from_json(serde_json::from_str(json).expect("the test writes JSON"))
    }

    fn written(value: Value, integers: Integers) -> String {
        serde_json::to_string(&PlainValue(&value, integers)).expect("values can be written")
    }

    #[test]
    fn every_kind_of_value_has_one_form() {
        assert_eq!(written(Value::Null, Integers::Number), "null");
        assert_eq!(written(Value::Integer(-3), Integers::String), "-3");
        assert_eq!(written(Value::Real(1.0), Integers::Number), "1.0");
        assert_eq!(written(Value::Text("a\"b".into()), Integers::Number), "\"a\\\"b\"");
        assert_eq!(written(Value::Blob(vec![1, 2]), Integers::Number), "{\"base64\":\"AQI=\"}");
        assert_eq!(written(Value::Real(f64::INFINITY), Integers::Number), "1e999");
        assert_eq!(written(Value::Real(f64::NEG_INFINITY), Integers::Number), "-1e999");
    }

    #[test]
    fn integers_become_strings_only_where_doubles_end_and_only_if_asked() {
        assert_eq!(written(Value::Integer(9007199254740991), Integers::String), "9007199254740991");
        assert_eq!(written(Value::Integer(9007199254740992), Integers::String), "\"9007199254740992\"");
        assert_eq!(written(Value::Integer(i64::MIN), Integers::String), "\"-9223372036854775808\"");
        assert_eq!(written(Value::Integer(i64::MIN), Integers::Number), "-9223372036854775808");
    }

    #[test]
    fn arguments_are_read_as_they_are_written() {
        for (json, value) in [
            ("null", Value::Null),
            ("true", Value::Integer(1)),
            ("false", Value::Integer(0)),
            ("9223372036854775807", Value::Integer(i64::MAX)),
            ("-9223372036854775808", Value::Integer(i64::MIN)),
            ("1.0", Value::Real(1.0)),
            ("1e2", Value::Real(100.0)),
            ("1e999", Value::Real(f64::INFINITY)),
            ("\"x\\n\\u00fc\"", Value::Text("x\nü".into())),
            ("{\"base64\": \"AQI\"}", Value::Blob(vec![1, 2])),
            ("{\"base64\": \"AQI=\"}", Value::Blob(vec![1, 2])),
        ] {
            assert_eq!(read(json), Ok(value), "{json}");
        }
        for wrong in [
            "[1]",
            "{}",
            "{\"base64\": 1}",
            "{\"base64\": \"?\"}",
            "{\"a\": 1}",
            "{\"base64\": \"AQI\", \"a\": 1}",
            "9223372036854775808",
            "18446744073709551616",
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
