//! Results as JSON, piece by piece, so that an answer never stands in memory a second time.
//!
//! An answer is a list of [`Item`]s: texts that are ready, and results whose rows are encoded when they are asked for, and dropped as they are. Even one large
//! value is encoded in slices: escaped or in base64 it may be six times as long.

use std::collections::VecDeque;

use base64::Engine;
use highwater_sql::{ResultSet, Value};
use serde::Serialize;
use serde_json::json;

use crate::answers::Extra;
use crate::hrana::types::Columns;
use crate::json::{BASE64, Integers, SAFE_INTEGER_MAX, serialize_real};

/// A piece is complete once it has so many bytes.
pub(crate) const PIECE_BYTES: usize = 64 << 10;
/// Texts and blobs are encoded in slices of so many bytes: a multiple of three, so that base64 pads only the last.
const SLICE_BYTES: usize = 12 << 10;

/// How a result is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// `{"columns", "rows", "affected", "last_insert_rowid"}` with plain values.
    Plain(Integers),
    /// Hrana's `StmtResult`.
    Hrana,
    /// The lines of a cursor for that step.
    Lines(usize),
}

/// A part of an answer.
#[derive(Debug)]
pub(crate) enum Item {
    /// As it is.
    Text(Vec<u8>),
    /// A result, to be written in that form.
    Result(ResultSet, Form),
}

/// A list of items under construction.
#[derive(Debug, Default)]
pub(crate) struct Items {
    items: VecDeque<Item>,
    /// The room that they take beside their rows.
    extra: Option<Extra>,
}

impl Items {
    /// Adds a text; texts that follow each other become one.
    pub(crate) fn text(&mut self, text: &str) {
        match self.items.back_mut() {
            Some(Item::Text(before)) => before.extend_from_slice(text.as_bytes()),
            _ => self.items.push_back(Item::Text(text.as_bytes().to_vec())),
        }
    }

    /// Adds something small as JSON.
    pub(crate) fn json(&mut self, value: &impl Serialize) {
        self.text(&serde_json::to_string(value).expect("answers are made of strings, numbers and lists"));
    }

    /// Has the answer keep that room until it has left.
    pub(crate) fn keep(&mut self, extra: Extra) {
        self.extra = Some(extra);
    }

    /// Adds a result.
    pub(crate) fn result(&mut self, result: ResultSet, form: Form) {
        self.items.push_back(Item::Result(result, form));
    }
}

/// Writes items one piece after the other.
#[derive(Debug)]
pub(crate) struct Encoder {
    items: VecDeque<Item>,
    present: Option<Writing>,
    _extra: Option<Extra>,
}

/// A result of which a part is written.
#[derive(Debug)]
struct Writing {
    result: ResultSet,
    form: Form,
    row: usize,
    column: usize,
    /// How much of the present value is written.
    byte: usize,
    begun: bool,
}

impl Encoder {
    pub(crate) fn new(items: Items) -> Encoder {
        Encoder { items: items.items, present: None, _extra: items.extra }
    }

    /// The next piece: a full one, or the last. `None` at the end.
    pub(crate) fn piece(&mut self) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        while out.len() < PIECE_BYTES {
            if let Some(writing) = &mut self.present {
                if writing.go_on(&mut out) {
                    self.present = None;
                }
                continue;
            }
            match self.items.pop_front() {
                None => break,
                Some(Item::Text(text)) if out.is_empty() => out = text,
                Some(Item::Text(text)) => out.extend_from_slice(&text),
                Some(Item::Result(result, form)) => {
                    self.present = Some(Writing { result, form, row: 0, column: 0, byte: 0, begun: false });
                }
            }
        }
        (!out.is_empty()).then_some(out)
    }

    /// Whether nothing is left.
    pub(crate) fn is_done(&self) -> bool {
        self.items.is_empty() && self.present.is_none()
    }
}

impl Writing {
    /// Writes until the piece is full or the result has ended; returns whether it has.
    fn go_on(&mut self, out: &mut Vec<u8>) -> bool {
        if !self.begun {
            self.begun = true;
            self.head(out);
        }
        while out.len() < PIECE_BYTES {
            if self.row == self.result.rows.len() {
                self.tail(out);
                return true;
            }
            self.write_in_row(out);
        }
        false
    }

    /// Writes the next slice of the present row.
    fn write_in_row(&mut self, out: &mut Vec<u8>) {
        let row = &self.result.rows[self.row];
        if self.byte == 0 {
            match (self.column, self.form) {
                (0, Form::Lines(_)) => out.extend_from_slice(b"{\"type\":\"row\",\"row\":["),
                (0, _) if self.row == 0 => out.push(b'['),
                (0, _) => out.extend_from_slice(b",["),
                _ if self.column < row.len() => out.push(b','),
                _ => {}
            }
        }
        if self.column < row.len() {
            match write_slice(&row[self.column], self.form, self.byte, out) {
                Some(byte) => {
                    self.byte = byte;
                    return;
                }
                None => (self.column, self.byte) = (self.column + 1, 0),
            }
        }
        if self.column >= row.len() {
            out.extend_from_slice(if matches!(self.form, Form::Lines(_)) { b"]}\n" } else { b"]" });
            // What is written is of no use any more.
            self.result.rows[self.row] = Vec::new();
            (self.row, self.column) = (self.row + 1, 0);
        }
    }

    fn head(&self, out: &mut Vec<u8>) {
        match self.form {
            Form::Plain(_) => {
                let names: Vec<&str> = self.result.columns.iter().map(|column| column.name.as_str()).collect();
                out.extend_from_slice(b"{\"columns\":");
                write_json(&names, out);
                out.extend_from_slice(b",\"rows\":[");
            }
            Form::Hrana => {
                out.extend_from_slice(b"{\"cols\":");
                write_json(&Columns(&self.result.columns), out);
                out.extend_from_slice(b",\"rows\":[");
            }
            Form::Lines(step) => {
                write_json(&json!({"type": "step_begin", "step": step, "cols": Columns(&self.result.columns)}), out);
                out.push(b'\n');
            }
        }
    }

    fn tail(&self, out: &mut Vec<u8>) {
        let (affected, rowid, rows) = (self.result.affected, self.result.last_insert_rowid, self.result.rows.len());
        let text = match self.form {
            Form::Plain(_) => format!("],\"affected\":{affected},\"last_insert_rowid\":{rowid}}}"),
            Form::Hrana => format!(
                "],\"affected_row_count\":{affected},\"last_insert_rowid\":\"{rowid}\",\"rows_read\":{rows},\"rows_written\":{affected},\"query_duration_ms\":0.0}}"
            ),
            Form::Lines(_) => format!(
                "{{\"type\":\"step_end\",\"affected_row_count\":{affected},\"last_insert_rowid\":\"{rowid}\"}}\n"
            ),
        };
        out.extend_from_slice(text.as_bytes());
    }
}

/// Writes a value from that byte of it on; returns where to go on, if it has not ended.
fn write_slice(value: &Value, form: Form, from: usize, out: &mut Vec<u8>) -> Option<usize> {
    let plain = match form {
        Form::Plain(integers) => Some(integers),
        Form::Hrana | Form::Lines(_) => None,
    };
    match value {
        Value::Text(text) => {
            let (open, close): (&[u8], &[u8]) = match plain {
                Some(_) => (b"\"", b"\""),
                None => (b"{\"type\":\"text\",\"value\":\"", b"\"}"),
            };
            if from == 0 {
                out.extend_from_slice(open);
            }
            let mut to = text.len().min(from + SLICE_BYTES);
            while !text.is_char_boundary(to) {
                to -= 1;
            }
            // The slice is written with quotes of its own, which go.
            let quote = out.len();
            write_json(&&text[from..to], out);
            out.remove(quote);
            out.pop();
            if to < text.len() {
                return Some(to);
            }
            out.extend_from_slice(close);
        }
        Value::Blob(bytes) => {
            if from == 0 {
                let open: &[u8] = if plain.is_some() { b"{\"base64\":\"" } else { b"{\"type\":\"blob\",\"base64\":\"" };
                out.extend_from_slice(open);
            }
            let to = bytes.len().min(from + SLICE_BYTES);
            out.extend_from_slice(BASE64.encode(&bytes[from..to]).as_bytes());
            if to < bytes.len() {
                return Some(to);
            }
            out.extend_from_slice(b"\"}");
        }
        Value::Null => out.extend_from_slice(if plain.is_some() { b"null" } else { b"{\"type\":\"null\"}" }),
        Value::Integer(number) => {
            let text = match plain {
                None => format!("{{\"type\":\"integer\",\"value\":\"{number}\"}}"),
                Some(Integers::String) if number.unsigned_abs() > SAFE_INTEGER_MAX => format!("\"{number}\""),
                Some(_) => number.to_string(),
            };
            out.extend_from_slice(text.as_bytes());
        }
        Value::Real(number) => {
            if plain.is_none() {
                out.extend_from_slice(b"{\"type\":\"float\",\"value\":");
            }
            let written = serialize_real(*number, &mut serde_json::Serializer::new(&mut *out));
            written.expect("numbers can be written to memory");
            if plain.is_none() {
                out.push(b'}');
            }
        }
    }
    None
}

fn write_json(value: &impl Serialize, out: &mut Vec<u8>) {
    serde_json::to_writer(out, value).expect("answers are made of strings, numbers and lists");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(rows: Vec<Vec<Value>>, form: Form) -> (String, usize) {
        let mut items = Items::default();
        items.result(ResultSet { rows, ..ResultSet::default() }, form);
        let mut encoder = Encoder::new(items);
        let (mut whole, mut longest) = (Vec::new(), 0);
        while let Some(piece) = encoder.piece() {
            longest = longest.max(piece.len());
            whole.extend_from_slice(&piece);
        }
        assert!(encoder.is_done());
        (String::from_utf8(whole).expect("JSON is text"), longest)
    }

    fn value(value: Value, form: Form) -> String {
        let text = written(vec![vec![value]], form).0;
        let (_, rest) = text.split_once("\"rows\":[[").expect("rows");
        rest.split_once("]]").expect("their end").0.to_string()
    }

    #[test]
    fn every_kind_of_value_has_one_plain_form() {
        let plain = |one| value(one, Form::Plain(Integers::Number));
        assert_eq!(plain(Value::Null), "null");
        assert_eq!(plain(Value::Real(1.0)), "1.0");
        assert_eq!(plain(Value::Text("a\"b".into())), "\"a\\\"b\"");
        assert_eq!(plain(Value::Text(String::new())), "\"\"");
        assert_eq!(plain(Value::Blob(vec![1, 2])), "{\"base64\":\"AQI=\"}");
        assert_eq!(plain(Value::Blob(vec![])), "{\"base64\":\"\"}");
        assert_eq!(plain(Value::Real(f64::INFINITY)), "1e999");
        assert_eq!(plain(Value::Real(f64::NEG_INFINITY)), "-1e999");
        assert_eq!(plain(Value::Integer(i64::MIN)), "-9223372036854775808");
    }

    #[test]
    fn integers_become_strings_only_where_doubles_end_and_only_if_asked() {
        let strings = |number| value(Value::Integer(number), Form::Plain(Integers::String));
        assert_eq!(strings(-3), "-3");
        assert_eq!(strings(9007199254740991), "9007199254740991");
        assert_eq!(strings(9007199254740992), "\"9007199254740992\"");
        assert_eq!(strings(i64::MIN), "\"-9223372036854775808\"");
    }

    #[test]
    fn every_kind_of_value_has_one_form_in_hrana() {
        let hrana = |one| value(one, Form::Hrana);
        assert_eq!(hrana(Value::Null), r#"{"type":"null"}"#);
        assert_eq!(hrana(Value::Integer(7)), r#"{"type":"integer","value":"7"}"#);
        assert_eq!(hrana(Value::Real(0.5)), r#"{"type":"float","value":0.5}"#);
        assert_eq!(hrana(Value::Text("x".into())), r#"{"type":"text","value":"x"}"#);
        assert_eq!(hrana(Value::Blob(vec![1, 2])), r#"{"type":"blob","base64":"AQI="}"#);
    }

    #[test]
    fn rows_and_columns_are_parted_by_commas_in_every_form() {
        let rows = || vec![vec![Value::Integer(1), Value::Null], vec![], vec![Value::Integer(2)]];
        let plain: serde_json::Value =
            serde_json::from_str(&written(rows(), Form::Plain(Integers::Number)).0).expect("JSON");
        assert_eq!(plain["rows"], json!([[1, null], [], [2]]));
        let hrana: serde_json::Value = serde_json::from_str(&written(rows(), Form::Hrana).0).expect("JSON");
        assert_eq!(hrana["rows"][0].as_array().map(Vec::len), Some(2));
        for line in written(rows(), Form::Lines(3)).0.lines() {
            serde_json::from_str::<serde_json::Value>(line).expect("each line is JSON");
        }
    }

    #[test]
    fn a_large_value_leaves_in_pieces_and_reads_back() {
        let text = "\u{1}ü\"x".repeat(200_000);
        let blob: Vec<u8> = (0..1_000_001_u32).map(|n| n as u8).collect();
        let rows = vec![vec![Value::Text(text.clone()), Value::Blob(blob.clone()), Value::Integer(1)]];
        let (json, longest) = written(rows, Form::Plain(Integers::Number));
        assert!(longest < 3 * PIECE_BYTES, "{longest}");
        let read: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        assert_eq!(read["rows"][0][0], json!(text));
        assert_eq!(read["rows"][0][1]["base64"], json!(BASE64.encode(&blob)));
        assert_eq!(read["rows"][0][2], 1);
    }
}
