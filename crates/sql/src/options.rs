//! What may be set of a database.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Limits and durations. Those on size are the same on every node, or a leader accepts what others cannot hold.
#[derive(Clone, Debug)]
pub struct Options {
    /// The most that one value, one row, or the text of one statement may have, in bytes (16 MiB). Beyond it: `VALUE_TOO_LARGE`.
    pub value_bytes_max: usize,
    /// The most that the row operations of one transaction may have, in bytes (256 MiB). Beyond it the transaction is rolled back: `TRANSACTION_TOO_LARGE`.
    pub transaction_bytes_max: usize,
    /// The most that the rows of one result may have, in bytes (64 MiB). Beyond it: `RESPONSE_TOO_LARGE`.
    pub result_bytes_max: usize,
    /// The most memory that the rows of one result may take, in bytes (256 MiB): small values take more than they have. Beyond it: `RESPONSE_TOO_LARGE`.
    pub result_memory_max: usize,
    /// The most that the result kept for an idempotency key may have, in bytes (1 MiB). Beyond it the transaction is rolled back: `RESPONSE_TOO_LARGE`.
    pub kept_result_bytes_max: usize,
    /// A transaction larger than this goes into several batches (4 MiB).
    pub batch_bytes: usize,
    /// From this size of SQLite's write-ahead log on, a checkpoint is wanted (32 MiB): writers wait for HW to reach what was executed.
    pub wal_bytes_checkpoint: u64,
    /// From this size on nothing is written before that (256 MiB): `OVERLOADED`.
    pub wal_bytes_max: u64,
    /// How long a writer waits for HW at a checkpoint that is wanted and not pressing, before it goes on without (500 ms).
    pub checkpoint_wait: Duration,
    /// How long an interactive transaction may hold the writer (5 s): `TRANSACTION_TIMEOUT`.
    pub interactive_max: Duration,
    /// How long the writer is waited for (5 s): `TRANSACTION_BUSY`.
    pub writer_wait: Duration,
    /// How long one statement outside a transaction, or one read, may run (60 s): `TRANSACTION_TIMEOUT`.
    pub statement_max: Duration,
    /// How long a reader waits for the first publication after a start or a rewind (1 s): `NOT_READY`.
    pub publish_wait: Duration,
    /// How long between two attempts to apply while the disk is full (500 ms); `None`: there is one, and applying fails.
    pub full_wait: Option<Duration>,
    /// How long an idempotency key is kept, in log time (24 h).
    pub key_retention: Duration,
    /// The wall clock in milliseconds since 1970: for the timestamps of batches, and nothing that must be right.
    pub clock: fn() -> i64,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            value_bytes_max: 16 << 20,
            transaction_bytes_max: 256 << 20,
            result_bytes_max: 64 << 20,
            result_memory_max: 256 << 20,
            kept_result_bytes_max: 1 << 20,
            batch_bytes: 4 << 20,
            wal_bytes_checkpoint: 32 << 20,
            wal_bytes_max: 256 << 20,
            checkpoint_wait: Duration::from_millis(500),
            interactive_max: Duration::from_secs(5),
            writer_wait: Duration::from_secs(5),
            statement_max: Duration::from_secs(60),
            publish_wait: Duration::from_secs(1),
            full_wait: Some(Duration::from_millis(500)),
            key_retention: Duration::from_secs(24 * 3600),
            clock: wall_clock_ms,
        }
    }
}

fn wall_clock_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64)
}
