//! A node on a real folder.

mod folder;
mod serve;

use std::time::{Duration, Instant};

use highwater_node::{Config, Database, Node, Outcome, StartError};
use highwater_sql::{ResultSet, SqlError, Statement, Transaction};
use std::sync::Arc;
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// What is not there after this long has hung.
const PATIENCE: Duration = Duration::from_secs(60);

/// A node with the runtime that its waits need.
struct Started {
    node: Node,
    runtime: Runtime,
}

impl Started {
    fn on(folder: &TempDir) -> Started {
        Started::with(Config::single(folder.path().join("data")))
    }

    fn with(config: Config) -> Started {
        Started { node: Node::start(config).expect("the node starts"), runtime: Runtime::new().expect("a runtime") }
    }

    /// `main`, as soon as it is open.
    fn main(&self) -> Arc<Database> {
        let begun = Instant::now();
        loop {
            match self.node.database("main") {
                Ok(db) if db.sql().is_ok() => return db,
                other => {
                    let state = other.map(|db| db.sql().err());
                    assert!(begun.elapsed() < PATIENCE, "the database is not open: {state:?}");
                    std::thread::yield_now();
                }
            }
        }
    }

    /// Runs one statement to its acknowledgement.
    fn sql(&self, sql: &str) -> Result<Vec<ResultSet>, SqlError> {
        let db = self.main();
        let statement = Statement { sql: sql.to_string(), want_rows: true, ..Statement::default() };
        let transaction = Transaction { statements: vec![statement], key: None };
        let begun = Instant::now();
        loop {
            let read = self.runtime.block_on(db.read_index(PATIENCE)).expect("the partition answers");
            let answer = db.sql().expect("it is open").transaction(&transaction, begun + PATIENCE);
            let waits = |error: &SqlError| error.code == "NOT_LEADER" || error.code == "NOT_READY";
            if !matches!(read, Outcome::Done(_)) || answer.result.as_ref().err().is_some_and(waits) {
                assert!(begun.elapsed() < PATIENCE, "no leader: {read:?}, {:?}", answer.result);
                std::thread::yield_now();
                continue;
            }
            if let Some(hold) = answer.hold {
                let outcome = self.runtime.block_on(db.hold(hold, Default::default(), PATIENCE));
                assert!(matches!(outcome, Ok(Outcome::Done(_))), "{outcome:?}");
            }
            return answer.result;
        }
    }

    fn count(&self, table: &str) -> highwater_sql::Value {
        self.sql(&format!("SELECT count(*) FROM {table}")).expect("the table is there")[0].rows[0][0].clone()
    }
}

fn refused(config: Config) -> StartError {
    match Node::start(config) {
        Ok(_) => panic!("the node started, where it should have refused"),
        Err(error) => error,
    }
}
