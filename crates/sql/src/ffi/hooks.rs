//! SQLite's callbacks: what a statement is about to do (authorizer), each row it changes (preupdate), and whether it may go on (progress).
//!
//! All three are installed when a connection is opened and stay: a DELETE that was prepared without a preupdate hook takes a short cut that reports no
//! rows, for as long as it stays prepared.

use std::cell::{Cell, RefCell};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use rusqlite::ffi;

use super::conn::{Failure, prepare};
use super::stmt::{Stmt, ValueRef, slice};
use super::watchdog::Watch;
use crate::allowance::{Allowance, ResultRoom};
use crate::capture::Capture;
use crate::classify::{Collector, Verdict};

/// How many steps of SQLite's machine lie between two looks at the clock: some tens of microseconds.
const PROGRESS_STEPS: c_int = 2_000;

/// What the callbacks of one connection share with it. Reached by shared reference only, since SQLite calls back while the connection is in use.
pub(crate) struct Hooks {
    /// Sees what statements are about to do.
    pub(crate) collector: RefCell<Collector>,
    /// Takes down what they do.
    pub(crate) capture: RefCell<Capture>,
    /// Set while statements of our own run: nothing is forbidden to them.
    internal: Cell<bool>,
    /// What whatever runs now may use.
    allowance: RefCell<Option<Allowance>>,
    /// When whatever runs now is interrupted, the allowance's deadline.
    deadline: Cell<Option<Instant>>,
    /// The watchdog's eye on it.
    watch: RefCell<Option<Watch>>,
    /// The handle of the connection; null until it is open.
    db: Cell<*mut ffi::sqlite3>,
    /// Interrupts whatever runs now, once.
    pub(crate) abort: Cell<bool>,
    /// Interrupts whatever runs on any connection of this database.
    stop: Arc<AtomicBool>,
    /// Whether the authorizer is installed.
    authorized: bool,
    /// Whether rows are taken down, and the clock is looked at.
    captured: bool,
}

impl Hooks {
    /// For a connection that runs what clients ask.
    pub(crate) fn client(capture: Capture, stop: Arc<AtomicBool>) -> Hooks {
        Hooks { capture: RefCell::new(capture), authorized: true, captured: true, stop, ..Hooks::own() }
    }

    /// For a connection that applies: nothing is forbidden to it but within [`Hooks::externally`].
    pub(crate) fn applier() -> Hooks {
        Hooks { authorized: true, internal: Cell::new(true), ..Hooks::own() }
    }

    /// For a connection that runs statements of our own only.
    pub(crate) fn own() -> Hooks {
        Hooks {
            collector: RefCell::new(Collector::default()),
            capture: RefCell::new(Capture::new(0)),
            internal: Cell::new(false),
            allowance: RefCell::new(None),
            deadline: Cell::new(None),
            watch: RefCell::new(None),
            db: Cell::new(ptr::null_mut()),
            abort: Cell::new(false),
            stop: Arc::new(AtomicBool::new(false)),
            authorized: false,
            captured: false,
        }
    }

    /// Runs something of our own on the connection, past the authorizer.
    pub(crate) fn internally<T>(&self, run: impl FnOnce() -> T) -> T {
        self.as_internal(true, run)
    }

    /// Runs something that others wrote on a connection of our own, under the authorizer.
    pub(crate) fn externally<T>(&self, run: impl FnOnce() -> T) -> T {
        self.as_internal(false, run)
    }

    fn as_internal<T>(&self, internal: bool, run: impl FnOnce() -> T) -> T {
        /// Puts back what was, also when a panic passes: the authorizer must not stay off.
        struct Restore<'a>(&'a Cell<bool>, bool);
        impl Drop for Restore<'_> {
            fn drop(&mut self) {
                self.0.set(self.1);
            }
        }
        let _restore = Restore(&self.internal, self.internal.replace(internal));
        if internal { super::memory::unrefused(run) } else { run() }
    }

    /// From here on, whatever runs on the connection is interrupted when the allowance ends.
    pub(crate) fn allow(&self, allowance: &Allowance) {
        self.end_allowance();
        if !self.db.get().is_null() {
            // SAFETY: `Conn` ends the allowance before it closes the handle.
            let watch = unsafe { Watch::interrupt(self.db.get(), allowance.deadline, &allowance.cancel) };
            *self.watch.borrow_mut() = Some(watch);
        }
        self.deadline.set(Some(allowance.deadline));
        *self.allowance.borrow_mut() = Some(allowance.clone());
    }

    /// The same as on another connection.
    pub(crate) fn allow_as(&self, other: &Hooks) {
        if let Some(allowance) = other.allowance.borrow().as_ref() {
            self.allow(allowance);
        }
    }

    /// From here on, nothing is interrupted but for the whole database's sake.
    pub(crate) fn end_allowance(&self) {
        *self.watch.borrow_mut() = None;
        self.deadline.set(None);
        *self.allowance.borrow_mut() = None;
    }

    /// Runs something short of our own that must not be interrupted, such as what ends a transaction.
    pub(crate) fn undisturbed<T>(&self, run: impl FnOnce() -> T) -> T {
        let allowance = self.allowance.borrow().clone();
        self.end_allowance();
        let result = self.internally(run);
        if let Some(allowance) = allowance {
            self.allow(&allowance);
        }
        result
    }

    /// What the memory of results is taken from.
    pub(crate) fn room(&self) -> Option<Arc<dyn ResultRoom>> {
        self.allowance.borrow().as_ref().and_then(|allowance| allowance.room.clone())
    }

    /// Whether whoever asked has left.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.allowance.borrow().as_ref().is_some_and(|allowance| allowance.cancel.is_cancelled())
    }

    /// Whether everything on this database is being interrupted.
    pub(crate) fn stopping(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Whether whatever runs must end.
    pub(crate) fn interrupted(&self) -> bool {
        self.abort.get()
            || self.stopping()
            || self.is_cancelled()
            || self.deadline.get().is_some_and(|deadline| Instant::now() >= deadline)
    }
}

/// Installs the callbacks.
///
/// # Safety
/// The handle is open, and `hooks` stays where it is until the handle is closed.
pub(super) unsafe fn install(db: *mut ffi::sqlite3, hooks: NonNull<Hooks>) {
    let context = hooks.as_ptr().cast::<c_void>();
    // SAFETY: promised by the caller; each callback casts the context back to a shared reference.
    unsafe {
        hooks.as_ref().db.set(db);
        if !hooks.as_ref().authorized {
            return;
        }
        ffi::sqlite3_set_authorizer(db, Some(authorize), context);
        if !hooks.as_ref().captured {
            return;
        }
        ffi::sqlite3_preupdate_hook(db, Some(preupdate), context);
        ffi::sqlite3_progress_handler(db, PROGRESS_STEPS, Some(progress), context);
    }
}

/// One thing that a statement is about to do, told while it is prepared.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AuthorizerEvent<'a> {
    /// SQLite's action code.
    pub(crate) action: i32,
    /// Two arguments whose meaning depends on the action.
    pub(crate) first: Option<&'a str>,
    pub(crate) second: Option<&'a str>,
    /// `main`, `temp`, or none.
    pub(crate) database: Option<&'a str>,
    /// The trigger or view that it is in.
    pub(crate) within: Option<&'a str>,
}

unsafe extern "C" fn authorize(
    context: *mut c_void,
    action: c_int,
    first: *const c_char,
    second: *const c_char,
    database: *const c_char,
    within: *const c_char,
) -> c_int {
    // SAFETY: the context given at installation; the strings are null or NUL-terminated and live through the call.
    let (hooks, event) = unsafe {
        let event = AuthorizerEvent {
            action,
            first: borrowed(first),
            second: borrowed(second),
            database: borrowed(database),
            within: borrowed(within),
        };
        (&*context.cast::<Hooks>(), event)
    };
    if hooks.internal.get() {
        return ffi::SQLITE_OK;
    }
    match contained(|| hooks.collector.borrow_mut().see(&event)) {
        Some(Verdict::Allowed) => ffi::SQLITE_OK,
        Some(Verdict::Ignored) => ffi::SQLITE_IGNORE,
        Some(Verdict::Denied) | None => ffi::SQLITE_DENY,
    }
}

/// Runs what a callback does. A panic, which has been reported by then, must not pass through C: it gives `None`.
pub(super) fn contained<T>(run: impl FnOnce() -> T) -> Option<T> {
    // What is shared lies in cells, which a panic leaves whole.
    catch_unwind(AssertUnwindSafe(run)).ok()
}

unsafe extern "C" fn progress(context: *mut c_void) -> c_int {
    // SAFETY: the context given at installation.
    let hooks = unsafe { &*context.cast::<Hooks>() };
    c_int::from(contained(|| hooks.interrupted()).unwrap_or(true))
}

/// What happens to a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowOp {
    Insert,
    Update,
    Delete,
}

/// A row that is about to be changed. For tables WITHOUT ROWID the rowids mean nothing.
pub(crate) struct RowEvent<'a> {
    db: *mut ffi::sqlite3,
    pub(crate) op: RowOp,
    pub(crate) table: &'a str,
    pub(crate) old_rowid: i64,
    pub(crate) new_rowid: i64,
}

impl RowEvent<'_> {
    /// The value before, of a stored column. Not for an insertion.
    pub(crate) fn before(&self, column: usize) -> Result<ValueRef<'_>, Failure> {
        assert_ne!(self.op, RowOp::Insert, "a new row has no old values");
        // SAFETY: called within the preupdate callback of this handle.
        unsafe { self.value(ffi::sqlite3_preupdate_old, column) }
    }

    /// The value after, of a stored column. Not for a deletion.
    pub(crate) fn after(&self, column: usize) -> Result<ValueRef<'_>, Failure> {
        assert_ne!(self.op, RowOp::Delete, "a deleted row has no new values");
        // SAFETY: called within the preupdate callback of this handle.
        unsafe { self.value(ffi::sqlite3_preupdate_new, column) }
    }

    /// # Safety
    /// Within the preupdate callback.
    unsafe fn value(
        &self,
        get: unsafe extern "C" fn(*mut ffi::sqlite3, c_int, *mut *mut ffi::sqlite3_value) -> c_int,
        column: usize,
    ) -> Result<ValueRef<'_>, Failure> {
        let mut value: *mut ffi::sqlite3_value = ptr::null_mut();
        // SAFETY: promised by the caller. SQLite has been seen to hand back a null pointer for virtual columns, so it is looked at. What is borrowed
        // stays until the callback returns.
        unsafe {
            let code = get(self.db, column as c_int, &mut value);
            if code != ffi::SQLITE_OK || value.is_null() {
                let message = format!("SQLite does not tell column {column} of a changed row");
                return Err(Failure {
                    code: if code == 0 { ffi::SQLITE_INTERNAL } else { code },
                    message,
                    offset: None,
                });
            }
            Ok(match ffi::sqlite3_value_type(value) {
                ffi::SQLITE_INTEGER => ValueRef::Integer(ffi::sqlite3_value_int64(value)),
                ffi::SQLITE_FLOAT => ValueRef::Real(ffi::sqlite3_value_double(value)),
                ffi::SQLITE_TEXT => {
                    let start = ffi::sqlite3_value_text(value);
                    ValueRef::Text(slice(start.cast(), ffi::sqlite3_value_bytes(value)))
                }
                ffi::SQLITE_BLOB => {
                    let start = ffi::sqlite3_value_blob(value);
                    ValueRef::Blob(slice(start.cast(), ffi::sqlite3_value_bytes(value)))
                }
                _ => ValueRef::Null,
            })
        }
    }

    /// Prepares a statement of our own on the connection, which SQLite's own session extension does at this point too.
    pub(crate) fn prepare(&self, sql: &str) -> Result<Stmt, Failure> {
        let (stmt, _) = prepare(self.db, sql, false)?;
        Ok(stmt.expect("statements of our own are not empty"))
    }

    /// Whether this is an incremental write into a blob, which does not tell what it changes.
    fn is_blob_write(&self) -> bool {
        // SAFETY: called within the preupdate callback of this handle.
        unsafe { ffi::sqlite3_preupdate_blobwrite(self.db) >= 0 }
    }
}

unsafe extern "C" fn preupdate(
    context: *mut c_void,
    db: *mut ffi::sqlite3,
    op: c_int,
    database: *const c_char,
    table: *const c_char,
    old_rowid: i64,
    new_rowid: i64,
) {
    // SAFETY: the context given at installation; the strings are NUL-terminated and live through the call.
    let (hooks, database, table) = unsafe { (&*context.cast::<Hooks>(), borrowed(database), borrowed(table)) };
    // Temporary tables and the copy that VACUUM makes are nobody else's business.
    if database != Some("main") {
        return;
    }
    let op = match op {
        ffi::SQLITE_INSERT => RowOp::Insert,
        ffi::SQLITE_UPDATE => RowOp::Update,
        _ => RowOp::Delete,
    };
    let event = RowEvent { db, op, table: table.unwrap_or_default(), old_rowid, new_rowid };
    let taken_down = contained(|| {
        let mut capture = hooks.capture.borrow_mut();
        hooks.internally(|| {
            if event.is_blob_write() {
                capture.fail(format!("an incremental write into a blob of {:?} cannot be shipped", event.table));
            } else {
                capture.row(&event);
            }
        });
        capture.failure().is_none()
    });
    if taken_down.is_none() {
        hooks.capture.borrow_mut().fail("a bug of the server's, which is in its log".to_string());
    }
    if taken_down != Some(true) {
        hooks.abort.set(true);
    }
}

/// Borrows a string of SQLite's. Names are UTF-8 wherever they come from a text that was; anything else is taken for no name.
///
/// # Safety
/// The pointer is null or points to a NUL-terminated string that lives for `'a`.
unsafe fn borrowed<'a>(pointer: *const c_char) -> Option<&'a str> {
    if pointer.is_null() {
        return None;
    }
    // SAFETY: promised by the caller.
    unsafe { CStr::from_ptr(pointer) }.to_str().ok()
}
