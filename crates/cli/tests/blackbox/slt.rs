//! The format of SQLite's test scripts: records separated by blank lines. Only what is true of SQLite is kept.

/// What a record asks for.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Record {
    /// A statement that must succeed, or must fail.
    Statement {
        /// Whether it must succeed.
        ok: bool,
        /// Its text.
        sql: String,
    },
    /// A query and what it must give.
    Query {
        /// The type of each column: `I`, `R` or `T`.
        types: String,
        /// How values are put in order before they are compared.
        sort: Sort,
        /// Queries with the same label give the same values.
        label: Option<String>,
        /// Its text.
        sql: String,
        /// The values, or the line that counts and hashes them.
        expected: Vec<String>,
    },
}

/// How a query's values are put in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sort {
    /// As they come.
    No,
    /// Row by row.
    Rows,
    /// Value by value, whatever row they are in.
    Values,
}

/// Reads a script: each record with the line it begins on, from 1.
///
/// # Panics
/// If the script is not in the format, with the line.
pub(crate) fn parse(text: &str) -> Vec<(usize, Record)> {
    let mut lines = text.lines().map(str::trim_end).enumerate().peekable();
    let mut records = Vec::new();
    let mut for_sqlite = true;
    while let Some((number, line)) = lines.next() {
        let words: Vec<&str> = line.split('#').next().unwrap_or("").split_whitespace().collect();
        let rest = |lines: &mut std::iter::Peekable<_>| take_until_blank(lines);
        match words.as_slice() {
            [] => continue,
            ["skipif", engine, ..] => {
                for_sqlite &= *engine != "sqlite";
                continue;
            }
            ["onlyif", engine, ..] => {
                for_sqlite &= *engine == "sqlite";
                continue;
            }
            // Longer results than the threshold are given by their hash, which the expected line itself says.
            ["hash-threshold", _] => {}
            ["halt"] if for_sqlite => break,
            ["halt"] => {}
            ["statement", outcome] => {
                assert!(["ok", "error"].contains(outcome), "line {}: {line}", number + 1);
                let sql = rest(&mut lines).join("\n");
                if for_sqlite {
                    records.push((number + 1, Record::Statement { ok: *outcome == "ok", sql }));
                }
            }
            ["query", types, more @ ..] => {
                let body = rest(&mut lines);
                let end = body.iter().position(|line| *line == "----").unwrap_or(body.len());
                let sort = match more.first().copied() {
                    None | Some("nosort") => Sort::No,
                    Some("rowsort") => Sort::Rows,
                    Some("valuesort") => Sort::Values,
                    Some(other) => panic!("line {}: unknown order {other:?}", number + 1),
                };
                if for_sqlite {
                    let query = Record::Query {
                        types: (*types).to_owned(),
                        sort,
                        label: more.get(1).map(|label| (*label).to_owned()),
                        sql: body[..end].join("\n"),
                        expected: body.iter().skip(end + 1).map(|line| (*line).to_owned()).collect(),
                    };
                    records.push((number + 1, query));
                }
            }
            _ => panic!("line {}: not a record: {line:?}", number + 1),
        }
        for_sqlite = true;
    }
    records
}

/// The lines up to the next blank one.
fn take_until_blank<'a>(lines: &mut std::iter::Peekable<impl Iterator<Item = (usize, &'a str)>>) -> Vec<&'a str> {
    let mut taken = Vec::new();
    while let Some((_, line)) = lines.next_if(|(_, line)| !line.is_empty()) {
        taken.push(line);
    }
    taken
}

#[test]
fn a_script_is_read_record_by_record() {
    let script = "\
# A comment.
hash-threshold 8

statement ok
CREATE TABLE t (a,
  b)

onlyif mysql # not ours
halt

skipif sqlite
statement ok
not for us

onlyif sqlite # ours
query IT rowsort label-1
SELECT a, b
FROM t
----
1
x

query I
SELECT 2
----
9 values hashing to 0123456789abcdef0123456789abcdef

statement error
SELECT nowhere

halt

statement ok
never reached
";
    let records = parse(script);
    let lines: Vec<usize> = records.iter().map(|(line, _)| *line).collect();
    assert_eq!(lines, [4, 16, 23, 28]);
    assert_eq!(records[0].1, Record::Statement { ok: true, sql: "CREATE TABLE t (a,\n  b)".to_owned() });
    let Record::Query { types, sort, label, sql, expected } = &records[1].1 else { panic!("{records:?}") };
    assert_eq!((types.as_str(), *sort, label.as_deref()), ("IT", Sort::Rows, Some("label-1")));
    assert_eq!(sql, "SELECT a, b\nFROM t");
    assert_eq!(expected, &["1", "x"]);
    assert!(matches!(&records[3].1, Record::Statement { ok: false, .. }));
}
