//! A prepared statement.

use std::ffi::{CStr, c_char, c_int};
use std::ptr::NonNull;

use rusqlite::ffi;

use super::conn::{Failure, failure};
use super::running::running_on;

/// What a step gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A row can be read.
    Row,
    /// The statement has ended.
    Done,
}

/// A value of a row, borrowed from the statement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum ValueRef<'a> {
    Null,
    Integer(i64),
    Real(f64),
    /// SQLite does not promise that text is UTF-8.
    Text(&'a [u8]),
    Blob(&'a [u8]),
}

/// A statement that is finalised when it is dropped. It must not outlive its connection, which everything in this crate keeps: statements live in the
/// cache of their connection or within one call.
pub(crate) struct Stmt {
    raw: NonNull<ffi::sqlite3_stmt>,
    db: *mut ffi::sqlite3,
}

// SAFETY: as for `Conn`, of which a statement is a part: it is used by one thread at a time.
unsafe impl Send for Stmt {}

impl Stmt {
    pub(super) fn new(db: *mut ffi::sqlite3, raw: *mut ffi::sqlite3_stmt) -> Option<Stmt> {
        NonNull::new(raw).map(|raw| Stmt { raw, db })
    }

    /// The raw statement, for the other wrappers of this module.
    pub(super) fn raw(&self) -> *mut ffi::sqlite3_stmt {
        self.raw.as_ptr()
    }

    fn check(&self, code: c_int) -> Result<(), Failure> {
        if code == ffi::SQLITE_OK { Ok(()) } else { Err(failure(self.db, code)) }
    }

    /// Runs to the next row or to the end. After a failure the statement is reset.
    pub(crate) fn step(&mut self) -> Result<Step, Failure> {
        // SAFETY: the statement is alive.
        match running_on(self.db, || unsafe { ffi::sqlite3_step(self.raw.as_ptr()) }) {
            ffi::SQLITE_ROW => Ok(Step::Row),
            ffi::SQLITE_DONE => Ok(Step::Done),
            code => {
                let failure = failure(self.db, code);
                self.reset();
                Err(failure)
            }
        }
    }

    /// Ends a run, so that the statement can be run again. Bindings stay.
    pub(crate) fn reset(&mut self) {
        // SAFETY: the statement is alive. The code repeats the last step's failure, which has been reported.
        unsafe { ffi::sqlite3_reset(self.raw.as_ptr()) };
    }

    /// Forgets the arguments.
    pub(crate) fn clear_bindings(&mut self) {
        // SAFETY: the statement is alive.
        unsafe { ffi::sqlite3_clear_bindings(self.raw.as_ptr()) };
    }

    /// How many bytes of memory it takes while it does not run.
    pub(crate) fn memory(&self) -> usize {
        // SAFETY: the statement is alive; nothing is reset.
        unsafe { ffi::sqlite3_stmt_status(self.raw.as_ptr(), ffi::SQLITE_STMTSTATUS_MEMUSED, 0) }.max(0) as usize
    }

    /// Whether it changes no database file by itself.
    pub(crate) fn readonly(&self) -> bool {
        // SAFETY: the statement is alive.
        unsafe { ffi::sqlite3_stmt_readonly(self.raw.as_ptr()) != 0 }
    }

    /// Whether it is an EXPLAIN of either kind.
    pub(crate) fn is_explain(&self) -> bool {
        // SAFETY: the statement is alive.
        unsafe { ffi::sqlite3_stmt_isexplain(self.raw.as_ptr()) != 0 }
    }

    /// How many parameters it has: the greatest index.
    pub(crate) fn parameter_count(&self) -> usize {
        // SAFETY: the statement is alive.
        unsafe { ffi::sqlite3_bind_parameter_count(self.raw.as_ptr()) }.max(0) as usize
    }

    /// The name of a parameter, with its first character; indices begin at 1.
    pub(crate) fn parameter_name(&self, index: usize) -> Option<String> {
        // SAFETY: the statement is alive, and the string is copied before it changes.
        unsafe { text(ffi::sqlite3_bind_parameter_name(self.raw.as_ptr(), index as c_int)) }
    }

    /// Binds a value; indices begin at 1.
    pub(crate) fn bind(&mut self, index: usize, value: ValueRef<'_>) -> Result<(), Failure> {
        let (stmt, index) = (self.raw.as_ptr(), index as c_int);
        // SAFETY: the statement is alive; SQLite copies text and blobs before the call returns (SQLITE_TRANSIENT). An empty slice's pointer is not null.
        let code = unsafe {
            match value {
                ValueRef::Null => ffi::sqlite3_bind_null(stmt, index),
                ValueRef::Integer(value) => ffi::sqlite3_bind_int64(stmt, index, value),
                ValueRef::Real(value) => ffi::sqlite3_bind_double(stmt, index, value),
                ValueRef::Text(value) => ffi::sqlite3_bind_text64(
                    stmt,
                    index,
                    value.as_ptr().cast::<c_char>(),
                    value.len() as u64,
                    ffi::SQLITE_TRANSIENT(),
                    ffi::SQLITE_UTF8 as u8,
                ),
                ValueRef::Blob(value) => ffi::sqlite3_bind_blob64(
                    stmt,
                    index,
                    value.as_ptr().cast(),
                    value.len() as u64,
                    ffi::SQLITE_TRANSIENT(),
                ),
            }
        };
        self.check(code)
    }

    /// How many columns a row has.
    pub(crate) fn column_count(&self) -> usize {
        // SAFETY: the statement is alive.
        unsafe { ffi::sqlite3_column_count(self.raw.as_ptr()) }.max(0) as usize
    }

    /// The name of a column.
    pub(crate) fn column_name(&self, column: usize) -> String {
        // SAFETY: the statement is alive, and the string is copied before it changes.
        unsafe { text(ffi::sqlite3_column_name(self.raw.as_ptr(), column as c_int)) }.unwrap_or_default()
    }

    /// The type that a column was declared with, if it comes straight from a table.
    pub(crate) fn column_decl_type(&self, column: usize) -> Option<String> {
        // SAFETY: as above.
        unsafe { text(ffi::sqlite3_column_decltype(self.raw.as_ptr(), column as c_int)) }
    }

    /// A value of the present row, valid until the next step.
    pub(crate) fn value(&self, column: usize) -> ValueRef<'_> {
        let (stmt, column) = (self.raw.as_ptr(), column as c_int);
        // SAFETY: the statement is alive and stands on a row; what is borrowed is valid until the next step, which needs `&mut self`. The bytes are
        // asked for after the pointer, as SQLite wants it.
        unsafe {
            match ffi::sqlite3_column_type(stmt, column) {
                ffi::SQLITE_INTEGER => ValueRef::Integer(ffi::sqlite3_column_int64(stmt, column)),
                ffi::SQLITE_FLOAT => ValueRef::Real(ffi::sqlite3_column_double(stmt, column)),
                ffi::SQLITE_TEXT => {
                    let start = ffi::sqlite3_column_text(stmt, column);
                    ValueRef::Text(slice(start.cast(), ffi::sqlite3_column_bytes(stmt, column)))
                }
                ffi::SQLITE_BLOB => {
                    let start = ffi::sqlite3_column_blob(stmt, column);
                    ValueRef::Blob(slice(start.cast(), ffi::sqlite3_column_bytes(stmt, column)))
                }
                _ => ValueRef::Null,
            }
        }
    }

    /// A value of the present row as an integer, as SQLite converts it.
    pub(crate) fn integer(&self, column: usize) -> i64 {
        // SAFETY: the statement is alive and stands on a row.
        unsafe { ffi::sqlite3_column_int64(self.raw.as_ptr(), column as c_int) }
    }

    /// A value of the present row as text; empty if it is none.
    pub(crate) fn string(&self, column: usize) -> String {
        match self.value(column) {
            ValueRef::Text(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            _ => String::new(),
        }
    }
}

impl Drop for Stmt {
    fn drop(&mut self) {
        // SAFETY: the statement is alive and not used afterwards.
        unsafe { ffi::sqlite3_finalize(self.raw.as_ptr()) };
    }
}

/// Copies a string of SQLite's.
///
/// # Safety
/// The pointer is null or points to a NUL-terminated string.
unsafe fn text(pointer: *const c_char) -> Option<String> {
    // SAFETY: promised by the caller.
    (!pointer.is_null()).then(|| unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned())
}

/// Bytes of SQLite's.
///
/// # Safety
/// The pointer is null (then the length is 0) or points to that many bytes, which stay as they are for `'a`.
pub(super) unsafe fn slice<'a>(start: *const u8, length: c_int) -> &'a [u8] {
    if start.is_null() || length <= 0 {
        return &[];
    }
    // SAFETY: promised by the caller.
    unsafe { std::slice::from_raw_parts(start, length as usize) }
}
