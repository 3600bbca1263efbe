//! What is asked.

use highwater_wire::Position;
use serde::Serialize;
use serde_json::Value;

/// One statement with its arguments, by position: JSON's null, numbers (an INTEGER exactly if written without fraction), strings, and
/// `{"base64": "..."}` for blobs.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Statement {
    /// The text.
    pub sql: String,
    /// Its arguments.
    pub args: Vec<Value>,
}

/// Statements that are done together or not at all.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Transaction {
    /// In their order.
    pub statements: Vec<Statement>,
}

impl Transaction {
    /// A transaction of one statement.
    pub fn of(sql: impl Into<String>, args: impl IntoIterator<Item = Value>) -> Transaction {
        Transaction::default().and(sql, args)
    }

    /// With one more statement.
    #[must_use]
    pub fn and(mut self, sql: impl Into<String>, args: impl IntoIterator<Item = Value>) -> Transaction {
        self.statements.push(Statement { sql: sql.into(), args: args.into_iter().collect() });
        self
    }

    /// As a request's body.
    pub(crate) fn body(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a transaction is made of strings, numbers and lists")
    }
}

/// How old a read may be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Freshness {
    /// Everything acknowledged before the call is seen.
    #[default]
    Linearizable,
    /// Everything that this client has written or seen is seen, whichever node answers.
    Session,
    /// This state or a later one.
    AtLeast(Position),
    /// Whatever the node that answers has.
    Eventual,
}

impl Freshness {
    /// As the query of a request, for a client that has seen `seen`.
    pub(crate) fn query(self, seen: Option<Position>) -> String {
        let least = match self {
            Freshness::Linearizable => return String::new(),
            Freshness::Eventual => None,
            Freshness::Session => seen,
            Freshness::AtLeast(position) => Some(position),
        };
        match least {
            Some(position) => format!("?freshness=eventual&min_position={position}"),
            None => "?freshness=eventual".into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_transaction_is_written_as_the_server_reads_it() {
        let transaction = Transaction::of("INSERT INTO t VALUES (?)", [json!(1)]).and("SELECT 1", []);
        let body: Value = serde_json::from_slice(&transaction.body()).expect("JSON");
        assert_eq!(
            body,
            json!({"statements": [{"sql": "INSERT INTO t VALUES (?)", "args": [1]}, {"sql": "SELECT 1", "args": []}]})
        );
    }

    #[test]
    fn each_freshness_asks_for_what_it_means() {
        let seen: Position = "1:4:9".parse().expect("a position");
        assert_eq!(Freshness::Linearizable.query(Some(seen)), "");
        assert_eq!(Freshness::Eventual.query(Some(seen)), "?freshness=eventual");
        assert_eq!(Freshness::Session.query(None), "?freshness=eventual");
        assert_eq!(Freshness::Session.query(Some(seen)), "?freshness=eventual&min_position=1:4:9");
        assert_eq!(Freshness::AtLeast(seen).query(None), "?freshness=eventual&min_position=1:4:9");
    }
}
