//! A state of the database that readers can go back to, as long as no checkpoint has passed it.

use std::ffi::c_int;
use std::ptr;

use rusqlite::ffi;

use super::conn::{Conn, Failure};

/// SQLite's snapshot: a copy of the header of its index of the write-ahead log at a commit. 48 bytes, unchanged since version 3.7.0, of which we read
/// the number of valid frames and the salts.
#[derive(Clone, Copy)]
#[repr(align(8))]
pub(crate) struct Snapshot([u8; 48]);

impl Snapshot {
    /// The newest state. No transaction may be open on the connection, and the log must hold at least one.
    pub(crate) fn newest(conn: &Conn) -> Result<Snapshot, Failure> {
        assert!(conn.autocommit(), "a snapshot is taken between transactions");
        conn.run("BEGIN", |_| Ok(()))?;
        let taken = conn.query_integer("PRAGMA main.schema_version").and_then(|_| Snapshot::current(conn));
        conn.run("ROLLBACK", |_| Ok(()))?;
        taken
    }

    /// The state that the connection's open read transaction sees.
    fn current(conn: &Conn) -> Result<Snapshot, Failure> {
        let mut raw: *mut ffi::sqlite3_snapshot = ptr::null_mut();
        // SAFETY: the handle is open and the name NUL-terminated; on success `raw` points to a snapshot, which is copied and freed.
        unsafe {
            let code: c_int = ffi::sqlite3_snapshot_get(conn.raw(), c"main".as_ptr(), &mut raw);
            if code != ffi::SQLITE_OK {
                return Err(conn.failure(code));
            }
            let bytes = (*raw).hidden;
            ffi::sqlite3_snapshot_free(raw);
            Ok(Snapshot(bytes))
        }
    }

    /// Lets the connection, which must be within BEGIN and have read nothing yet, see this state.
    pub(crate) fn open(&self, conn: &Conn) -> Result<(), Failure> {
        let mut copy = *self;
        // SAFETY: the handle is open; SQLite reads 48 bytes, aligned as its own are, and keeps no pointer to them once the transaction has begun, which
        // happens within this call.
        let code = unsafe { ffi::sqlite3_snapshot_open(conn.raw(), c"main".as_ptr(), (&raw mut copy).cast()) };
        if code == ffi::SQLITE_OK { Ok(()) } else { Err(conn.failure(code)) }
    }

    /// The number of valid frames in the log (`mxFrame`).
    pub(crate) fn frames(&self) -> u32 {
        u32::from_ne_bytes(self.0[16..20].try_into().expect("four bytes"))
    }

    /// The salts, as they lie in the header of the log's file.
    pub(crate) fn salts(&self) -> [u8; 8] {
        self.0[32..40].try_into().expect("eight bytes")
    }
}
