//! Hrana's JSON, as it arrives and as it leaves.
//!
//! Unknown fields are ignored, as the specification asks. Integers travel as decimal strings; blobs as base64, padded or not.

use base64::Engine;
use highwater_sql::{BatchStep, Column, Condition, Description, ResultSet, SqlError, Statement, Value};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::json;

use super::texts::Texts;
use crate::encode::{Form, Items};
use crate::json::BASE64;

/// `POST .../pipeline`.
#[derive(Debug, Deserialize)]
pub(crate) struct PipelineRequest {
    /// The baton of the stream's last response; none opens a stream.
    #[serde(default)]
    pub(crate) baton: Option<String>,
    /// What to do, in order. All run, even after one failed.
    pub(crate) requests: Vec<StreamRequest>,
}

/// `POST /v3/cursor`.
#[derive(Debug, Deserialize)]
pub(crate) struct CursorRequest {
    /// As in a pipeline.
    #[serde(default)]
    pub(crate) baton: Option<String>,
    /// The batch to run.
    pub(crate) batch: Batch,
}

/// One request of a stream.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum StreamRequest {
    /// Runs one statement.
    Execute { stmt: Stmt },
    /// Runs steps with conditions.
    Batch { batch: Batch },
    /// Runs statements separated by semicolons; rows are dropped.
    Sequence {
        #[serde(default)]
        sql: Option<String>,
        #[serde(default)]
        sql_id: Option<i32>,
    },
    /// Tells of a statement without running it.
    Describe {
        #[serde(default)]
        sql: Option<String>,
        #[serde(default)]
        sql_id: Option<i32>,
    },
    /// Keeps a text under a number for this stream.
    StoreSql { sql_id: i32, sql: String },
    /// Forgets it.
    CloseSql { sql_id: i32 },
    /// Whether no transaction is open.
    GetAutocommit,
    /// Ends the stream.
    Close,
}

/// A statement.
#[derive(Debug, Deserialize)]
pub(crate) struct Stmt {
    #[serde(default)]
    pub(crate) sql: Option<String>,
    #[serde(default)]
    pub(crate) sql_id: Option<i32>,
    #[serde(default)]
    pub(crate) args: Vec<ValueIn>,
    #[serde(default)]
    pub(crate) named_args: Vec<NamedArg>,
    #[serde(default)]
    pub(crate) want_rows: Option<bool>,
}

/// An argument with a name, which may omit its `:`, `@` or `$`.
#[derive(Debug, Deserialize)]
pub(crate) struct NamedArg {
    name: String,
    value: ValueIn,
}

/// Steps to be run in order.
#[derive(Debug, Deserialize)]
pub(crate) struct Batch {
    pub(crate) steps: Vec<Step>,
}

/// One step.
#[derive(Debug, Deserialize)]
pub(crate) struct Step {
    #[serde(default)]
    pub(crate) condition: Option<Cond>,
    pub(crate) stmt: Stmt,
}

/// When a step runs. A skipped step is neither ok nor error.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum Cond {
    Ok { step: usize },
    Error { step: usize },
    Not { cond: Box<Cond> },
    And { conds: Vec<Cond> },
    Or { conds: Vec<Cond> },
    IsAutocommit,
}

/// A value on its way in.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum ValueIn {
    Null,
    Integer {
        #[serde(deserialize_with = "decimal")]
        value: i64,
    },
    Float {
        value: f64,
    },
    Text {
        value: String,
    },
    Blob {
        #[serde(deserialize_with = "bytes")]
        base64: Vec<u8>,
    },
}

fn decimal<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse().map_err(|_| {
        serde::de::Error::custom(format!(
            "an integer's value is a decimal string that fits in 64 signed bits; found {text:?}"
        ))
    })
}

fn bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    let text = String::deserialize(deserializer)?;
    BASE64.decode(text).map_err(|error| serde::de::Error::custom(format!("a blob's \"base64\" is not base64: {error}")))
}

impl From<ValueIn> for Value {
    fn from(value: ValueIn) -> Value {
        match value {
            ValueIn::Null => Value::Null,
            ValueIn::Integer { value } => Value::Integer(value),
            ValueIn::Float { value } => Value::Real(value),
            ValueIn::Text { value } => Value::Text(value),
            ValueIn::Blob { base64 } => Value::Blob(base64),
        }
    }
}

impl Stmt {
    /// The statement as SQL runs it. `texts` finds stored texts.
    pub(crate) fn resolve(self, texts: &Texts) -> Result<Statement, SqlError> {
        Ok(Statement {
            sql: resolve_sql(self.sql, self.sql_id, texts)?,
            args: self.args.into_iter().map(Value::from).collect(),
            named: self.named_args.into_iter().map(|arg| (arg.name, arg.value.into())).collect(),
            want_rows: self.want_rows.unwrap_or(true),
        })
    }
}

/// The text that exactly one of `sql` and `sql_id` gives.
pub(crate) fn resolve_sql(sql: Option<String>, sql_id: Option<i32>, texts: &Texts) -> Result<String, SqlError> {
    match (sql, sql_id) {
        (Some(sql), None) => Ok(sql),
        (None, Some(id)) => texts.get(id).map(str::to_string).ok_or_else(|| {
            protocol_error(format!("no text is stored under sql_id {id} on this stream; send store_sql first"))
        }),
        (None, None) => Err(protocol_error("a statement needs \"sql\" or \"sql_id\"; found neither".into())),
        (Some(_), Some(_)) => Err(protocol_error("a statement has \"sql\" or \"sql_id\"; found both".into())),
    }
}

/// An error in the use of the protocol, told in the place of one request's response.
pub(crate) fn protocol_error(message: String) -> SqlError {
    SqlError { code: "HRANA_PROTO_ERROR".into(), message, offset: None }
}

/// Stored texts are copied for each step of a batch that names them: so many bytes at most.
const STORED_COPIES_MAX_BYTES: usize = 64 << 20;

impl Batch {
    /// The steps as SQL runs them. A condition may name only earlier steps, and conditions nest no deeper than 100.
    pub(crate) fn resolve(self, texts: &Texts) -> Result<Vec<BatchStep>, SqlError> {
        let mut steps = Vec::with_capacity(self.steps.len());
        let mut copied = 0;
        for (index, step) in self.steps.into_iter().enumerate() {
            if let Some(text) = step.stmt.sql_id.and_then(|id| texts.get(id)) {
                copied += text.len();
                if copied > STORED_COPIES_MAX_BYTES {
                    return Err(SqlError {
                        code: "STORED_SQL_TOO_LARGE".into(),
                        message: format!(
                            "the stored texts that this batch names add up to more than {STORED_COPIES_MAX_BYTES} bytes; send it in several batches"
                        ),
                        offset: None,
                    });
                }
            }
            let condition = step.condition.map(|cond| cond.resolve(index, 0)).transpose()?;
            steps.push(BatchStep { condition, statement: step.stmt.resolve(texts)? });
        }
        Ok(steps)
    }
}

impl Cond {
    fn resolve(self, index: usize, depth: usize) -> Result<Condition, SqlError> {
        let earlier = |step: usize| {
            if step < index {
                Ok(step)
            } else {
                Err(protocol_error(format!("the condition of step {index} names step {step}, which is not before it")))
            }
        };
        if depth > 100 {
            return Err(protocol_error(format!("the condition of step {index} nests deeper than 100")));
        }
        let all = |conds: Vec<Cond>| {
            conds.into_iter().map(|cond| cond.resolve(index, depth + 1)).collect::<Result<Vec<_>, _>>()
        };
        Ok(match self {
            Cond::Ok { step } => Condition::Ok(earlier(step)?),
            Cond::Error { step } => Condition::Error(earlier(step)?),
            Cond::Not { cond } => Condition::Not(Box::new(cond.resolve(index, depth + 1)?)),
            Cond::And { conds } => Condition::And(all(conds)?),
            Cond::Or { conds } => Condition::Or(all(conds)?),
            Cond::IsAutocommit => Condition::IsAutocommit,
        })
    }
}

/// What became of each step: nothing if it was skipped.
pub(crate) type StepOutcomes = Vec<Option<Result<ResultSet, SqlError>>>;

/// A request's response.
#[derive(Debug)]
pub(crate) enum StreamResponse {
    Execute(ResultSet),
    Batch(StepOutcomes),
    Sequence,
    Describe(Description),
    StoreSql,
    CloseSql,
    GetAutocommit(bool),
    Close,
}

/// A pipeline's response.
#[derive(Debug)]
pub(crate) struct PipelineResponse {
    /// The stream's next baton; none if it is closed.
    pub(crate) baton: Option<String>,
    /// One for each request.
    pub(crate) results: Vec<Result<StreamResponse, SqlError>>,
}

impl PipelineResponse {
    /// The response as it leaves.
    pub(crate) fn into_items(self) -> Items {
        let mut items = Items::default();
        items.text("{\"baton\":");
        items.json(&self.baton);
        items.text(",\"base_url\":null,\"results\":[");
        for (index, result) in self.results.into_iter().enumerate() {
            if index > 0 {
                items.text(",");
            }
            match result {
                Ok(response) => {
                    items.text("{\"type\":\"ok\",\"response\":");
                    response.write(&mut items);
                }
                Err(error) => {
                    items.text("{\"type\":\"error\",\"error\":");
                    items.json(&ErrorOut(&error));
                }
            }
            items.text("}");
        }
        items.text("]}");
        items
    }
}

impl StreamResponse {
    fn write(self, items: &mut Items) {
        match self {
            StreamResponse::Execute(result) => {
                items.text("{\"type\":\"execute\",\"result\":");
                items.result(result, Form::Hrana);
                items.text("}");
            }
            StreamResponse::Batch(steps) => write_batch(steps, items),
            StreamResponse::Describe(description) => {
                items.json(&json!({"type": "describe", "result": DescribeResult(&description)}));
            }
            StreamResponse::Sequence => items.text("{\"type\":\"sequence\"}"),
            StreamResponse::StoreSql => items.text("{\"type\":\"store_sql\"}"),
            StreamResponse::CloseSql => items.text("{\"type\":\"close_sql\"}"),
            StreamResponse::GetAutocommit(flag) => {
                items.json(&json!({"type": "get_autocommit", "is_autocommit": flag}));
            }
            StreamResponse::Close => items.text("{\"type\":\"close\"}"),
        }
    }
}

/// `{"step_results": [..], "step_errors": [..]}`, each with a null for what the other list has, and both for a step that was skipped.
fn write_batch(steps: StepOutcomes, items: &mut Items) {
    items.text("{\"type\":\"batch\",\"result\":{\"step_results\":[");
    let mut errors = Vec::with_capacity(steps.len());
    for (index, step) in steps.into_iter().enumerate() {
        if index > 0 {
            items.text(",");
        }
        errors.push(match step {
            Some(Ok(result)) => {
                items.result(result, Form::Hrana);
                None
            }
            Some(Err(error)) => {
                items.text("null");
                Some(error)
            }
            None => {
                items.text("null");
                None
            }
        });
    }
    items.text("],\"step_errors\":[");
    for (index, error) in errors.iter().enumerate() {
        if index > 0 {
            items.text(",");
        }
        items.json(&error.as_ref().map(ErrorOut));
    }
    items.text("]}}");
}

/// An error with its code.
pub(crate) struct ErrorOut<'a>(pub(crate) &'a SqlError);

impl Serialize for ErrorOut<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(2))?;
        map.serialize_entry("message", &self.0.message)?;
        map.serialize_entry("code", &self.0.code)?;
        map.end()
    }
}

/// Columns with the types they were declared with.
pub(crate) struct Columns<'a>(pub(crate) &'a [Column]);

impl Serialize for Columns<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Out<'a> {
            name: &'a str,
            decltype: Option<&'a str>,
        }
        serializer
            .collect_seq(self.0.iter().map(|column| Out { name: &column.name, decltype: column.decl_type.as_deref() }))
    }
}

struct DescribeResult<'a>(&'a Description);

impl Serialize for DescribeResult<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Param<'a> {
            name: Option<&'a str>,
        }
        let params: Vec<Param<'_>> = self.0.params.iter().map(|name| Param { name: name.as_deref() }).collect();
        let mut map = serializer.serialize_map(Some(4))?;
        map.serialize_entry("params", &params)?;
        map.serialize_entry("cols", &Columns(&self.0.columns))?;
        map.serialize_entry("is_explain", &self.0.is_explain)?;
        map.serialize_entry("is_readonly", &self.0.is_readonly)?;
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(json: &str) -> Result<PipelineRequest, serde_json::Error> {
        serde_json::from_str(json)
    }

    #[test]
    fn values_are_read_in_every_form_the_clients_send() {
        let request = parse(
            r#"{"requests":[{"type":"execute","stmt":{"sql":"SELECT ?,?,?,?,?","args":[{"type":"null"},
            {"type":"integer","value":"-9223372036854775808"},{"type":"float","value":1},{"type":"text","value":"x"},
            {"type":"blob","base64":"AQI"}],"named_args":[{"name":"a","value":{"type":"null"}}],"unknown":1}}]}"#,
        )
        .expect("a pipeline as clients send it");
        let [StreamRequest::Execute { stmt }] = <[_; 1]>::try_from(request.requests).expect("one request") else {
            panic!("an execute request")
        };
        let statement = stmt.resolve(&Texts::for_tests(&[])).expect("it has a text");
        assert!(statement.want_rows, "rows are wanted unless they are declined");
        assert_eq!(statement.named, [("a".to_string(), Value::Null)]);
        assert_eq!(
            statement.args,
            [Value::Null, Value::Integer(i64::MIN), Value::Real(1.0), Value::Text("x".into()), Value::Blob(vec![1, 2])]
        );
    }

    #[test]
    fn wrong_types_are_refused_with_what_was_wanted() {
        for (json, wanted) in [
            (
                r#"{"requests":[{"type":"execute","stmt":{"sql":"x","args":[{"type":"integer","value":"1.5"}]}}]}"#,
                "decimal",
            ),
            (r#"{"requests":[{"type":"execute","stmt":{"sql":"x","args":[{"type":"blob","base64":"?"}]}}]}"#, "base64"),
            (r#"{"requests":[{"type":"dance"}]}"#, "dance"),
            (r#"{"requests":[{"type":"store_sql","sql_id":4294967296,"sql":"x"}]}"#, "4294967296"),
            (r#"{"requests":7}"#, "sequence"),
            (r#"{}"#, "requests"),
        ] {
            let error = parse(json).expect_err(json).to_string();
            assert!(error.contains(wanted), "{error:?} should speak of {wanted:?}");
        }
    }

    #[test]
    fn a_condition_names_only_earlier_steps() {
        let batch = |cond: &str| -> Batch {
            serde_json::from_str(&format!(
                r#"{{"steps":[{{"stmt":{{"sql":"a"}}}},{{"condition":{cond},"stmt":{{"sql_id":3}}}}]}}"#
            ))
            .expect("a batch")
        };
        let texts = Texts::for_tests(&[(3, "b")]);
        let steps =
            batch(r#"{"type":"and","conds":[{"type":"ok","step":0},{"type":"not","cond":{"type":"is_autocommit"}}]}"#)
                .resolve(&texts)
                .expect("a good condition");
        assert_eq!(steps[1].statement.sql, "b");
        assert_eq!(
            steps[1].condition,
            Some(Condition::And(vec![Condition::Ok(0), Condition::Not(Box::new(Condition::IsAutocommit))]))
        );
        let error = batch(r#"{"type":"ok","step":1}"#).resolve(&texts).expect_err("a condition on itself");
        assert_eq!(error.code, "HRANA_PROTO_ERROR");
        assert!(
            batch(r#"{"type":"ok","step":0}"#).resolve(&Texts::for_tests(&[])).is_err(),
            "an unknown sql_id is refused"
        );
    }

    #[test]
    fn responses_have_the_shape_clients_read() {
        let result = ResultSet {
            columns: vec![Column { name: "a".into(), decl_type: Some("INT".into()) }],
            rows: vec![vec![Value::Integer(1)], vec![Value::Real(0.5)]],
            affected: 0,
            last_insert_rowid: 7,
            ..ResultSet::default()
        };
        let error = SqlError { code: "SQLITE_CONSTRAINT".into(), message: "no".into(), offset: None };
        let response = PipelineResponse {
            baton: None,
            results: vec![
                Ok(StreamResponse::Execute(result.clone())),
                Ok(StreamResponse::Batch(vec![Some(Ok(result)), None, Some(Err(error.clone()))])),
                Err(error),
                Ok(StreamResponse::GetAutocommit(true)),
                Ok(StreamResponse::Close),
            ],
        };
        let written = crate::encode::Encoder::new(response.into_items()).piece().expect("it is not empty");
        let json: serde_json::Value = serde_json::from_slice(&written).expect("it is JSON");
        assert!(json["baton"].is_null() && json["base_url"].is_null());
        assert_eq!(json["results"][0]["type"], "ok");
        assert_eq!(json["results"][0]["response"]["type"], "execute");
        let executed = &json["results"][0]["response"]["result"];
        assert_eq!(executed["cols"][0], serde_json::json!({"name": "a", "decltype": "INT"}));
        assert_eq!(executed["rows"][0][0], serde_json::json!({"type": "integer", "value": "1"}));
        assert_eq!(executed["rows"][1][0], serde_json::json!({"type": "float", "value": 0.5}));
        assert_eq!(executed["last_insert_rowid"], "7");
        let batch = &json["results"][1]["response"]["result"];
        assert!(batch["step_results"][1].is_null() && batch["step_errors"][1].is_null(), "a skipped step is neither");
        assert_eq!(batch["step_errors"][2]["code"], "SQLITE_CONSTRAINT");
        assert_eq!(json["results"][2]["error"]["message"], "no");
        assert_eq!(json["results"][3]["response"]["is_autocommit"], true);
        assert_eq!(json["results"][4]["response"], serde_json::json!({"type": "close"}));
    }
}
