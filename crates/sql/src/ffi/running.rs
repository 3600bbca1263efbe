//! Which connection a thread runs a statement on, for what SQLite calls without saying for whom; and memory, as the place where it can be stopped.
//!
//! SQLite looks whether it was interrupted where its programs jump. A list of thousands of values, each made of megabytes, has no jump in it. But whoever
//! makes large values asks for memory: once the statement of a thread was interrupted, it is given no large piece any more. The statement ends then as one
//! that has no memory, which `run::interrupted` takes for what it is.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::{Once, OnceLock};

use rusqlite::ffi;

/// From how many bytes on a piece of memory is refused to an interrupted statement (1 MiB).
const LARGE_BYTES: c_int = 1 << 20;

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

/// SQLite's own ways to memory.
struct Memory {
    allocate: unsafe extern "C" fn(c_int) -> *mut c_void,
    grow: unsafe extern "C" fn(*mut c_void, c_int) -> *mut c_void,
}

static ORIGINAL: OnceLock<Memory> = OnceLock::new();

/// Starts SQLite, with our ways to memory if it was not started before: what opened a database without us, as tests may, goes without them.
///
/// # Errors
/// SQLite's code, if it does not start.
pub(crate) fn start() -> Result<(), c_int> {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let mut methods = MaybeUninit::<ffi::sqlite3_mem_methods>::zeroed();
        // SAFETY: both calls take a pointer to such a structure, which SQLite fills or copies. They are refused once SQLite has started.
        unsafe {
            if ffi::sqlite3_config(ffi::SQLITE_CONFIG_GETMALLOC, methods.as_mut_ptr()) != ffi::SQLITE_OK {
                return;
            }
            let mut methods = methods.assume_init();
            let (Some(original), Some(original_grow)) = (methods.xMalloc, methods.xRealloc) else { return };
            ORIGINAL.get_or_init(|| Memory { allocate: original, grow: original_grow });
            methods.xMalloc = Some(allocate);
            methods.xRealloc = Some(grow);
            let code = ffi::sqlite3_config(ffi::SQLITE_CONFIG_MALLOC, ptr::from_ref(&methods));
            if code != ffi::SQLITE_OK {
                tracing::warn!(
                    code,
                    "SQLite keeps its own ways to memory: some statements will run past their deadline"
                );
            }
        }
    });
    // SAFETY: may be called at any time, any number of times.
    match unsafe { ffi::sqlite3_initialize() } {
        ffi::SQLITE_OK => Ok(()),
        code => Err(code),
    }
}

unsafe extern "C" fn allocate(bytes: c_int) -> *mut c_void {
    match ORIGINAL.get() {
        // SAFETY: SQLite's own function.
        Some(original) if bytes < LARGE_BYTES || !interrupted() => unsafe { (original.allocate)(bytes) },
        _ => ptr::null_mut(),
    }
}

unsafe extern "C" fn grow(memory: *mut c_void, bytes: c_int) -> *mut c_void {
    match ORIGINAL.get() {
        // SAFETY: SQLite's own function, with memory that came from it.
        Some(original) if bytes < LARGE_BYTES || !interrupted() => unsafe { (original.grow)(memory, bytes) },
        _ => ptr::null_mut(),
    }
}
