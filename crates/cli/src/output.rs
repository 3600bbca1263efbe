//! What commands print.

use std::io::Write;

use serde_json::Value;

/// Writes a line to standard output. A reader that has left ends the command quietly, as it does for other tools.
pub(crate) fn line(text: &str) {
    let mut out = std::io::stdout().lock();
    if writeln!(out, "{text}").and_then(|()| out.flush()).is_err() {
        std::process::exit(0);
    }
}

/// Writes a warning to standard error, if there is one.
pub(crate) fn warning(text: &str) {
    let _ = writeln!(std::io::stderr(), "warning: {text}");
}

/// Prints the one JSON document of a command.
pub(crate) fn document(value: &Value) {
    line(&serde_json::to_string_pretty(value).expect("a document is made of strings, numbers and lists"));
}

/// A cell as people read it.
fn cell(value: &Value) -> String {
    let text = match value {
        Value::Null => "NULL".to_string(),
        Value::String(text) => text.clone(),
        Value::Object(map) => match map.get("base64").and_then(Value::as_str) {
            Some(base64) => format!("base64:{base64}"),
            None => value.to_string(),
        },
        other => other.to_string(),
    };
    // A table has one line for each row.
    text.replace('\\', "\\\\").replace('\n', "\\n").replace('\r', "\\r").replace('\t', "\\t")
}

/// Rows under their columns, numbers to the right.
pub(crate) fn table(columns: &[String], rows: &[Vec<Value>]) -> String {
    let cells: Vec<Vec<String>> = rows.iter().map(|row| row.iter().map(cell).collect()).collect();
    let width = |text: &str| text.chars().count();
    let widths: Vec<usize> = columns
        .iter()
        .enumerate()
        .map(|(at, name)| {
            let widest = cells.iter().filter_map(|row| row.get(at)).map(|text| width(text)).max().unwrap_or(0);
            widest.max(width(name))
        })
        .collect();
    let is_number = |at: usize| {
        let mut values = rows.iter().filter_map(|row| row.get(at)).filter(|value| !value.is_null()).peekable();
        values.peek().is_some() && values.all(Value::is_number)
    };
    let right: Vec<bool> = (0..columns.len()).map(is_number).collect();
    let joined = |texts: &[String]| {
        let padded = texts.iter().enumerate().map(|(at, text)| {
            let space = " ".repeat(widths.get(at).copied().unwrap_or(0).saturating_sub(width(text)));
            if right.get(at).copied().unwrap_or(false) { format!("{space}{text}") } else { format!("{text}{space}") }
        });
        padded.collect::<Vec<_>>().join("  ").trim_end().to_string()
    };
    let rule: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
    let mut lines = vec![joined(columns), rule.join("  ")];
    lines.extend(cells.iter().map(|row| joined(row)));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn numbers_stand_to_the_right_and_nothing_breaks_a_line() {
        let text = table(
            &["id".into(), "name".into()],
            &[vec![json!(1), json!("a\nb")], vec![json!(100), json!(null)], vec![json!(7), json!({"base64": "AQI="})]],
        );
        assert_eq!(text, " id  name\n---  -----------\n  1  a\\nb\n100  NULL\n  7  base64:AQI=");
    }

    #[test]
    fn a_table_without_rows_still_names_its_columns() {
        assert_eq!(table(&["a".into(), "bc".into()], &[]), "a  bc\n-  --");
    }
}
