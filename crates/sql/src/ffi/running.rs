//! Which connection a thread runs a statement on, for what SQLite calls without saying for whom: tokenizers, functions, and the allocator (see `memory`).

use std::cell::Cell;
use std::ptr;

use rusqlite::ffi;

thread_local! {
    /// The connection on which this thread runs a statement.
    static RUNNING: Cell<*mut ffi::sqlite3> = const { Cell::new(ptr::null_mut()) };
}

/// Runs something while this thread is known to use that connection, which must be open meanwhile.
pub(super) fn running_on<T>(db: *mut ffi::sqlite3, run: impl FnOnce() -> T) -> T {
    /// Statements run within others: what a hook asks.
    struct Restore(*mut ffi::sqlite3);
    impl Drop for Restore {
        fn drop(&mut self) {
            RUNNING.set(self.0);
        }
    }
    let _restore = Restore(RUNNING.replace(db));
    run()
}

/// Whether the statement that this thread runs was interrupted.
pub(super) fn interrupted() -> bool {
    let db = RUNNING.get();
    // SAFETY: `running_on` is called with an open handle, which is not closed meanwhile.
    !db.is_null() && unsafe { ffi::sqlite3_is_interrupted(db) } != 0
}
