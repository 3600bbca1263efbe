//! SQLite's values as plain JSON: what `POST /db/NAME/sql` takes and gives. How results are written is in [`crate::encode`].
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
use highwater_sql::Value;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;

/// Base64 as it leaves: with padding. On the way in padding may be missing.
pub(crate) const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The greatest integer up to which every integer is a double of its own: 2^53 - 1.
pub(crate) const SAFE_INTEGER_MAX: u64 = (1 << 53) - 1;

/// How integers that a double cannot hold are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Integers {
    /// As numbers, whatever the reader makes of them.
    #[default]
    Number,
    /// As strings, if their magnitude is above 2^53 - 1.
    String,
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
