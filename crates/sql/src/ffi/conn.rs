//! A connection.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_int};
use std::path::{Path, PathBuf};
use std::ptr::{self, NonNull};

use rusqlite::ffi;

use super::functions;
use super::hooks::{self, Hooks};
use super::stmt::{Step, Stmt};
use super::temporary_space::count_temporary_files;

/// Prepared statements kept for each connection. Beyond it all are dropped: an application that makes a new text for every request gains nothing from
/// a cleverer rule.
const CACHE_MAX: usize = 256;

/// How long a lock of SQLite's is waited for. Only checkpoints and starts of logs take any that others could hold.
pub(crate) const BUSY_TIMEOUT_MS: c_int = 1_000;

/// Pages copied between two looks at whether to go on.
const COPIED_AT_ONCE: c_int = 1_000;

/// What SQLite said when something failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// The extended result code.
    pub(crate) code: c_int,
    /// SQLite's message.
    pub(crate) message: String,
    /// Where in the text, if SQLite says.
    pub(crate) offset: Option<usize>,
}

impl Failure {
    /// The primary result code.
    pub(crate) fn primary(&self) -> c_int {
        self.code & 0xff
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} (SQLite's code {})", self.message, self.code)
    }
}

/// Where a database file is.
#[derive(Clone, Debug)]
pub(crate) struct Location {
    /// Its path.
    pub(crate) path: PathBuf,
    /// The name of the VFS that knows it; `None` for SQLite's default.
    pub(crate) vfs: Option<&'static CStr>,
}

impl From<&Path> for Location {
    /// A file of the file system's.
    fn from(path: &Path) -> Location {
        Location { path: path.to_path_buf(), vfs: None }
    }
}

/// How far a log was written back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WrittenBack {
    /// All of it, and it is empty.
    Emptied,
    /// Maybe all of it; somebody still reads from it, so that it is not empty.
    Kept,
    /// A part: somebody reads an older state.
    Part,
}

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpenMode {
    /// Made if it is not there.
    Create,
    /// It must be there.
    Existing,
    /// It must be there, nothing is written to it, and no file is made beside it. What lies in a write-ahead log beside it is not seen.
    Immutable,
}

/// The name by which SQLite opens a file as one that nobody changes.
fn immutable_uri(path: &[u8]) -> Vec<u8> {
    let mut uri = b"file:".to_vec();
    for byte in path {
        match byte {
            b'/' | b'.' | b'-' | b'_' => uri.push(*byte),
            byte if byte.is_ascii_alphanumeric() => uri.push(*byte),
            byte => uri.extend_from_slice(format!("%{byte:02X}").as_bytes()),
        }
    }
    uri.extend_from_slice(b"?immutable=1");
    uri
}

/// Whether SQLite was compiled with an option.
pub(crate) fn compile_option_used(option: &CStr) -> bool {
    // SAFETY: the argument is a NUL-terminated string, which SQLite only reads.
    unsafe { ffi::sqlite3_compileoption_used(option.as_ptr()) != 0 }
}

/// Whether a text ends a statement: a semicolon inside a trigger's body does not. A text with a NUL byte in it does, so that preparing it says what is wrong.
pub(crate) fn complete_statement(sql: &str) -> bool {
    // SAFETY: the argument is a NUL-terminated string, which SQLite only reads.
    CString::new(sql).map_or(true, |sql| unsafe { ffi::sqlite3_complete(sql.as_ptr()) == 1 })
}

/// A connection that owns its handle, its hooks' context and its cached statements.
pub(crate) struct Conn {
    cache: RefCell<BTreeMap<String, Stmt>>,
    db: *mut ffi::sqlite3,
    /// What the callbacks are given. Freed after the handle is closed, and never if SQLite refuses to close it.
    hooks: NonNull<Hooks>,
    /// It was closed, or could not be.
    is_shut: bool,
}

// SAFETY: SQLite is compiled with SQLITE_THREADSAFE=1, under which a handle may move between threads; this type is not `Sync`, so that only one uses it
// at a time. The context in `hooks` is reached through this handle alone.
unsafe impl Send for Conn {}

impl Conn {
    /// Opens a file, and installs the hooks before anything is prepared: a DELETE that was prepared without them would report no rows.
    pub(crate) fn open(location: impl Into<Location>, mode: OpenMode, hooks: Hooks) -> Result<Conn, Failure> {
        super::memory::install();
        let Location { path, vfs } = location.into();
        let flags = match mode {
            OpenMode::Create => ffi::SQLITE_OPEN_READWRITE | ffi::SQLITE_OPEN_CREATE,
            OpenMode::Existing => ffi::SQLITE_OPEN_READWRITE,
            OpenMode::Immutable => ffi::SQLITE_OPEN_READONLY | ffi::SQLITE_OPEN_URI,
        } | ffi::SQLITE_OPEN_NOMUTEX
            | ffi::SQLITE_OPEN_EXRESCODE;
        let bytes = path.as_os_str().as_encoded_bytes();
        let name = if mode == OpenMode::Immutable { immutable_uri(bytes) } else { bytes.to_vec() };
        let name = CString::new(name).map_err(|_| Failure {
            code: ffi::SQLITE_CANTOPEN,
            message: format!("a path with a NUL byte in it: {}", path.display()),
            offset: None,
        })?;
        count_temporary_files().map_err(|code| Failure {
            code,
            message: "SQLite does not start".to_string(),
            offset: None,
        })?;
        let mut db = ptr::null_mut();
        let vfs = vfs.map_or(ptr::null(), CStr::as_ptr);
        // SAFETY: `name` and `vfs`, if there is one, are NUL-terminated and live through the call; `db` receives a handle even on failure, which is closed below.
        let code = unsafe { ffi::sqlite3_open_v2(name.as_ptr(), &mut db, flags, vfs) };
        let conn = Conn {
            cache: RefCell::new(BTreeMap::new()),
            db,
            hooks: NonNull::from(Box::leak(Box::new(hooks))),
            is_shut: false,
        };
        if code != ffi::SQLITE_OK {
            return Err(conn.failure(code));
        }
        // If something fails in here, the connection is closed, and whoever closes the last one writes SQLite's log back: nobody has asked for that.
        conn.set_switch(ffi::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        // SAFETY: the context is freed only after the handle is closed (see `shut`), so the pointers that SQLite keeps stay valid.
        unsafe {
            hooks::install(conn.db, conn.hooks);
            conn.hooks().internally(|| functions::install(&conn, conn.hooks))?;
        }
        conn.set_switch(ffi::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false)?;
        Ok(conn)
    }

    /// Puts our LIKE in place of SQLite's own, which `PRAGMA case_sensitive_like` has put in place of ours, and keeps what it says.
    pub(crate) fn keep_like(&self) -> Result<(), Failure> {
        // SAFETY: the context is freed only after the handle is closed.
        self.hooks().undisturbed(|| unsafe { functions::install_like_as_it_is(self, self.hooks) })
    }

    /// What the hooks of this connection share with it.
    pub(crate) fn hooks(&self) -> &Hooks {
        // SAFETY: freed only when the connection ends, and shared by references alone until then.
        unsafe { self.hooks.as_ref() }
    }

    /// The raw handle, for the other wrappers of this module.
    pub(super) fn raw(&self) -> *mut ffi::sqlite3 {
        self.db
    }

    /// The failure that the last call left behind.
    pub(crate) fn failure(&self, code: c_int) -> Failure {
        failure(self.db, code)
    }

    /// Sets one of SQLite's switches.
    pub(crate) fn set_switch(&self, switch: i32, on: bool) -> Result<(), Failure> {
        let mut now: c_int = -1;
        // SAFETY: the switches used here all take (int, int*); `now` lives through the call.
        let code = unsafe { ffi::sqlite3_db_config(self.db, switch, c_int::from(on), &mut now as *mut c_int) };
        if code != ffi::SQLITE_OK {
            return Err(self.failure(code));
        }
        assert_eq!(now, c_int::from(on), "SQLite took the switch {switch}");
        Ok(())
    }

    /// Sets a run-time limit.
    pub(crate) fn set_limit(&self, limit: i32, value: c_int) {
        // SAFETY: takes no pointer but the handle.
        unsafe { ffi::sqlite3_limit(self.db, limit, value) };
    }

    /// How long a lock is waited for.
    pub(crate) fn set_busy_timeout(&self, ms: c_int) {
        // SAFETY: takes no pointer but the handle.
        unsafe { ffi::sqlite3_busy_timeout(self.db, ms) };
    }

    /// Whether no transaction is open.
    pub(crate) fn autocommit(&self) -> bool {
        // SAFETY: takes no pointer but the handle.
        unsafe { ffi::sqlite3_get_autocommit(self.db) != 0 }
    }

    /// Whether the open transaction has begun to write to the database file.
    pub(crate) fn writes_main(&self) -> bool {
        // SAFETY: the handle is open and the name NUL-terminated.
        unsafe { ffi::sqlite3_txn_state(self.db, c"main".as_ptr()) == ffi::SQLITE_TXN_WRITE }
    }

    /// Rows changed by the last INSERT, UPDATE or DELETE, triggers not counted; 0 if it was undone by its failure.
    pub(crate) fn changes(&self) -> u64 {
        // SAFETY: takes no pointer but the handle.
        let changes = unsafe { ffi::sqlite3_changes64(self.db) };
        changes.max(0) as u64
    }

    /// The last inserted rowid.
    pub(crate) fn last_insert_rowid(&self) -> i64 {
        // SAFETY: takes no pointer but the handle.
        unsafe { ffi::sqlite3_last_insert_rowid(self.db) }
    }

    /// Sets what `last_insert_rowid()` answers.
    pub(crate) fn set_last_insert_rowid(&self, rowid: i64) {
        // SAFETY: takes no pointer but the handle.
        unsafe { ffi::sqlite3_set_last_insert_rowid(self.db, rowid) };
    }

    /// Prepares the first statement of a text. Returns it (`None` for blanks and comments) and how many bytes it took.
    pub(crate) fn prepare(&self, sql: &str, keep: bool) -> Result<(Option<Stmt>, usize), Failure> {
        prepare(self.db, sql, keep)
    }

    /// Takes a statement of ours out of the cache, or prepares it.
    pub(crate) fn take(&self, sql: &str) -> Result<Stmt, Failure> {
        if let Some(stmt) = self.cache.borrow_mut().remove(sql) {
            return Ok(stmt);
        }
        let (stmt, _) = self.prepare(sql, true)?;
        Ok(stmt.expect("statements of our own are not empty"))
    }

    /// Puts a statement back for the next use.
    pub(crate) fn put(&self, sql: &str, mut stmt: Stmt) {
        stmt.reset();
        let mut cache = self.cache.borrow_mut();
        if cache.len() >= CACHE_MAX {
            cache.clear();
        }
        cache.insert(sql.to_string(), stmt);
    }

    /// Forgets all cached statements.
    pub(crate) fn clear_cache(&self) {
        self.cache.borrow_mut().clear();
    }

    /// Runs every statement of a text of our own, dropping rows.
    pub(crate) fn exec(&self, sql: &str) -> Result<(), Failure> {
        let mut rest = sql;
        while !rest.is_empty() {
            let (stmt, used) = self.prepare(rest, false)?;
            if let Some(mut stmt) = stmt {
                while stmt.step()? == Step::Row {}
            }
            if used == 0 {
                // A NUL byte, behind which SQLite reads nothing.
                break;
            }
            rest = &rest[used..];
        }
        Ok(())
    }

    /// Runs one cached statement of our own, after `bind` has given it its arguments.
    pub(crate) fn run(&self, sql: &str, bind: impl FnOnce(&mut Stmt) -> Result<(), Failure>) -> Result<(), Failure> {
        self.query(sql, bind, |_| Ok(()))
    }

    /// Runs one cached statement of our own and shows each row to `row`.
    pub(crate) fn query(
        &self,
        sql: &str,
        bind: impl FnOnce(&mut Stmt) -> Result<(), Failure>,
        mut row: impl FnMut(&Stmt) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let mut stmt = self.take(sql)?;
        bind(&mut stmt)?;
        while stmt.step()? == Step::Row {
            row(&stmt)?;
        }
        self.put(sql, stmt);
        Ok(())
    }

    /// Runs one cached statement of our own for its first integer.
    pub(crate) fn query_integer(&self, sql: &str) -> Result<Option<i64>, Failure> {
        let mut found = None;
        self.query(
            sql,
            |_| Ok(()),
            |row| {
                found = found.or(Some(row.integer(0)));
                Ok(())
            },
        )?;
        Ok(found)
    }

    /// Copies the whole database, as this connection's open transaction sees it, over that of `to`; given up with SQLITE_INTERRUPT when `go_on` says no.
    pub(crate) fn copy_into(&self, to: &Conn, go_on: &dyn Fn() -> bool) -> Result<(), Failure> {
        // SAFETY: both handles are open and distinct; the backup is finished before either can be closed.
        unsafe {
            let backup = ffi::sqlite3_backup_init(to.db, c"main".as_ptr(), self.db, c"main".as_ptr());
            if backup.is_null() {
                return Err(failure(to.db, ffi::sqlite3_extended_errcode(to.db)));
            }
            let stepped = loop {
                match ffi::sqlite3_backup_step(backup, COPIED_AT_ONCE) {
                    ffi::SQLITE_OK if go_on() => {}
                    ffi::SQLITE_OK => break ffi::SQLITE_INTERRUPT,
                    code => break code,
                }
            };
            let finished = ffi::sqlite3_backup_finish(backup);
            match (stepped, finished) {
                (ffi::SQLITE_DONE, ffi::SQLITE_OK) => Ok(()),
                (ffi::SQLITE_INTERRUPT, _) => Err(Failure {
                    code: ffi::SQLITE_INTERRUPT,
                    message: "the copy was interrupted".to_string(),
                    offset: None,
                }),
                (code, ffi::SQLITE_OK) | (_, code) => Err(failure(to.db, code)),
            }
        }
    }

    /// Writes the log back into the database file and empties it.
    pub(crate) fn checkpoint_truncate(&self) -> Result<WrittenBack, Failure> {
        let (mut log, mut done): (c_int, c_int) = (-1, -1);
        // Whoever reads may read for long; nobody waits for that here.
        self.set_busy_timeout(0);
        // SAFETY: the name is NUL-terminated; both integers live through the call.
        let code = unsafe {
            ffi::sqlite3_wal_checkpoint_v2(
                self.db,
                c"main".as_ptr(),
                ffi::SQLITE_CHECKPOINT_TRUNCATE,
                &mut log,
                &mut done,
            )
        };
        self.set_busy_timeout(BUSY_TIMEOUT_MS);
        match code & 0xff {
            ffi::SQLITE_OK => Ok(WrittenBack::Emptied),
            ffi::SQLITE_BUSY | ffi::SQLITE_LOCKED if done < log => Ok(WrittenBack::Part),
            ffi::SQLITE_BUSY | ffi::SQLITE_LOCKED => Ok(WrittenBack::Kept),
            _ => Err(self.failure(code)),
        }
    }

    /// Closes the connection, and says so if it could not be.
    pub(crate) fn close(mut self) -> Result<(), Failure> {
        self.shut()
    }

    fn shut(&mut self) -> Result<(), Failure> {
        self.is_shut = true;
        self.clear_cache();
        self.hooks().end_allowance();
        let db = std::mem::replace(&mut self.db, ptr::null_mut());
        // SAFETY: the handle is open or null, and not used afterwards. With a statement still alive SQLite refuses to close it, and the handle with all it
        // points to is leaked rather than freed under the statement.
        let code = unsafe { ffi::sqlite3_close(db) };
        if code != ffi::SQLITE_OK {
            return Err(failure(db, code));
        }
        // SAFETY: it came from a box, and nobody has a pointer to it any more.
        drop(unsafe { Box::from_raw(self.hooks.as_ptr()) });
        Ok(())
    }
}

impl Drop for Conn {
    fn drop(&mut self) {
        if !self.is_shut
            && let Err(failure) = self.shut()
        {
            tracing::error!(%failure, "a connection could not be closed and is leaked");
        }
    }
}

/// What SQLite says of the last failure of a handle.
pub(super) fn failure(db: *mut ffi::sqlite3, code: c_int) -> Failure {
    if db.is_null() {
        return Failure { code, message: "out of memory".to_string(), offset: None };
    }
    // SAFETY: the handle is open; the message is copied before anything else is called on it.
    unsafe {
        let message = CStr::from_ptr(ffi::sqlite3_errmsg(db)).to_string_lossy().into_owned();
        let offset = ffi::sqlite3_error_offset(db);
        Failure { code, message, offset: usize::try_from(offset).ok() }
    }
}

/// See [`Conn::prepare`].
pub(super) fn prepare(db: *mut ffi::sqlite3, sql: &str, keep: bool) -> Result<(Option<Stmt>, usize), Failure> {
    let Ok(length) = c_int::try_from(sql.len()) else {
        return Err(Failure {
            code: ffi::SQLITE_TOOBIG,
            message: "the text is longer than SQLite takes".to_string(),
            offset: None,
        });
    };
    let flags = if keep { ffi::SQLITE_PREPARE_PERSISTENT } else { 0 };
    let mut stmt = ptr::null_mut();
    let mut tail: *const c_char = ptr::null();
    // SAFETY: the text is given with its length; `stmt` and `tail` live through the call, and `tail` points into the text.
    let code = unsafe { ffi::sqlite3_prepare_v3(db, sql.as_ptr().cast(), length, flags, &mut stmt, &mut tail) };
    if code != ffi::SQLITE_OK {
        return Err(failure(db, code));
    }
    let used = if tail.is_null() { sql.len() } else { tail as usize - sql.as_ptr() as usize };
    assert!(used <= sql.len(), "SQLite's tail lies in the text");
    Ok((Stmt::new(db, stmt), used))
}
