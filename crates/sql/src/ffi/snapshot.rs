//! A state of the database that readers can go back to, as long as no checkpoint has passed it.

use std::ffi::c_int;
use std::ptr;

use rusqlite::ffi;

use super::conn::{Conn, Failure};

/// The version of the index's format.
const INDEX_VERSION: u32 = 3_007_000;
const INDEX_REGION_BYTES: c_int = 32 * 1024;

/// SQLite's snapshot: a copy of the header of its index of the write-ahead log at a commit. 48 bytes, unchanged since version 3.7.0, of which we read
/// the number of valid frames and the salts.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(align(8))]
pub(crate) struct Snapshot([u8; 48]);

impl Snapshot {
    /// The newest state. No transaction may be open on the connection, and the log must hold at least one.
    pub(crate) fn newest(conn: &Conn) -> Result<Snapshot, Failure> {
        assert!(conn.autocommit(), "a snapshot is taken between transactions");
        if let Some(copied) = Snapshot::copied(conn) {
            return Ok(copied);
        }
        conn.run("BEGIN", |_| Ok(()))?;
        let taken = conn.query_integer("PRAGMA main.schema_version").and_then(|_| Snapshot::current(conn));
        conn.run("ROLLBACK", |_| Ok(()))?;
        taken
    }

    /// The same, copied from the index of the log where it lies in shared memory: a twentieth of the time. The caller holds the writer's token, so nobody
    /// changes it meanwhile. `None` if it is not as it should be; then SQLite is asked.
    fn copied(conn: &Conn) -> Option<Snapshot> {
        let mut file: *mut ffi::sqlite3_file = ptr::null_mut();
        let mut index: *mut std::ffi::c_void = ptr::null_mut();
        // SAFETY: the handle is open and gives out its own file, whose methods live as long as it does. The first region of the index has 32 KiB and stays
        // mapped while the connection is open; it begins with two copies of the header. Other processes do not open the file.
        let copies: [[u8; 48]; 2] = unsafe {
            let asked = ffi::sqlite3_file_control(
                conn.raw(),
                c"main".as_ptr(),
                ffi::SQLITE_FCNTL_FILE_POINTER,
                (&raw mut file).cast(),
            );
            if asked != ffi::SQLITE_OK || file.is_null() || (*file).pMethods.is_null() {
                return None;
            }
            let methods = &*(*file).pMethods;
            let map = methods.xShmMap.filter(|_| methods.iVersion >= 2)?;
            if map(file, 0, INDEX_REGION_BYTES, 0, &mut index) != ffi::SQLITE_OK || index.is_null() {
                return None;
            }
            ptr::read_volatile(index.cast())
        };
        let copied = Snapshot(copies[0]);
        let version = u32::from_ne_bytes(copied.0[..4].try_into().expect("four bytes"));
        let is_initialised = copied.0[12] != 0;
        (copies[0] == copies[1] && version == INDEX_VERSION && is_initialised && copied.frames() > 0).then_some(copied)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ffi::{Hooks, OpenMode};

    #[test]
    fn a_copied_snapshot_is_the_one_that_sqlite_gives() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.sqlite");
        let conn = Conn::open(path.as_path(), OpenMode::Create, Hooks::own()).unwrap();
        conn.exec("PRAGMA journal_mode=WAL; PRAGMA wal_autocheckpoint=0; CREATE TABLE t(a)").unwrap();
        let reader = Conn::open(path.as_path(), OpenMode::Existing, Hooks::own()).unwrap();
        let mut earlier = Vec::new();
        for count in 1..5 {
            conn.exec("INSERT INTO t VALUES(1)").unwrap();
            let copied = Snapshot::copied(&conn).expect("the index can be read");
            conn.exec("BEGIN; SELECT 1 FROM t").unwrap();
            let given = Snapshot::current(&conn).unwrap();
            conn.exec("COMMIT").unwrap();
            assert_eq!(copied.0, given.0);
            earlier.push((count, copied));
        }
        for (count, snapshot) in earlier {
            reader.exec("PRAGMA schema_version; BEGIN").unwrap();
            snapshot.open(&reader).unwrap();
            assert_eq!(reader.query_integer("SELECT count(*) FROM t").unwrap(), Some(count));
            reader.exec("COMMIT").unwrap();
        }
    }
}
