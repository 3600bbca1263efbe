//! The memory that SQLite takes for a client's request, bounded. Without a bound a row of two thousand large values, which takes a line to ask for, is 32 GB.
//!
//! SQLite asks an allocator of ours, which counts what the present thread has taken since its request began, and asks SQLite's own:
//!
//! | A request has taken | and more is |
//! |---|---|
//! | up to [`FREE_BYTES`] | given |
//! | up to [`REQUEST_MAX_BYTES`] | taken from the room that answers share, [`STEP_BYTES`] at a time, until the request ends |
//! | more, or the room is full | refused: SQLite gives up the statement as it does when a machine has no memory (SQLITE_NOMEM) |
//!
//! SQLite looks whether it was interrupted where its programs jump. A list of thousands of values, each made of megabytes, has no jump in it. But whoever
//! makes large values asks for memory: a statement that was interrupted, on any thread, is given no piece of [`LARGE_BYTES`] or more, nor one that grows beyond them.
//!
//! What gives up needs a little memory itself, so a request that was refused gets [`RESERVE_BYTES`] more, in small pieces. Statements of our own are counted
//! and not refused. Threads that run no request, such as those that apply, are neither.

use std::cell::{Cell, RefCell};
use std::ffi::{c_int, c_void};
use std::marker::PhantomData;
use std::sync::{Arc, OnceLock};

use rusqlite::ffi;

use super::running::interrupted;
use crate::allowance::ResultRoom;

/// From how many bytes on a piece is refused to a statement that was interrupted.
const LARGE_BYTES: isize = 1 << 20;
/// What every request has.
const FREE_BYTES: isize = 1 << 20;
/// What is taken from the room at a time.
const STEP_BYTES: isize = 1 << 20;
/// The most that the statements of one request take at a time.
pub(crate) const REQUEST_MAX_BYTES: isize = 128 << 20;
/// What a request has beyond its bound in order to give up...
const RESERVE_BYTES: isize = 4 << 20;
/// ...in pieces of at most so many bytes.
const RESERVE_PIECE_BYTES: isize = 64 << 10;

/// SQLite's own allocator.
struct Own {
    malloc: unsafe extern "C" fn(c_int) -> *mut c_void,
    free: unsafe extern "C" fn(*mut c_void),
    realloc: unsafe extern "C" fn(*mut c_void, c_int) -> *mut c_void,
    size: unsafe extern "C" fn(*mut c_void) -> c_int,
}

static OWN: OnceLock<Option<Own>> = OnceLock::new();

/// What the present thread's request has taken. Cells without a destructor: SQLite may ask at any time of a thread's life.
struct Present {
    counts: Cell<bool>,
    refuses: Cell<bool>,
    taken: Cell<isize>,
    allowed: Cell<isize>,
    reserve: Cell<isize>,
}

thread_local! {
    static PRESENT: Present = const {
        Present {
            counts: Cell::new(false),
            refuses: Cell::new(false),
            taken: Cell::new(0),
            allowed: Cell::new(0),
            reserve: Cell::new(0),
        }
    };
    static ROOM: RefCell<Option<Arc<dyn ResultRoom>>> = const { RefCell::new(None) };
    static REFUSAL: RefCell<Option<Refusal>> = const { RefCell::new(None) };
}

/// Why a request got no more memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It has all that one may.
    TooMuch,
    /// The room is full, as it says.
    Full(String),
}

/// Puts our allocator before SQLite's own. Called before SQLite is used for the first time; a process that has used it before (which tests do) has no bound.
pub(crate) fn install() {
    OWN.get_or_init(|| {
        let mut methods = std::mem::MaybeUninit::<ffi::sqlite3_mem_methods>::zeroed();
        // SAFETY: SQLite writes the whole struct, whose members may be null. Nobody else configures it: this runs once, before it is used.
        let mut methods = unsafe {
            if ffi::sqlite3_config(ffi::SQLITE_CONFIG_GETMALLOC, methods.as_mut_ptr()) != ffi::SQLITE_OK {
                return None;
            }
            methods.assume_init()
        };
        let own =
            Own { malloc: methods.xMalloc?, free: methods.xFree?, realloc: methods.xRealloc?, size: methods.xSize? };
        methods.xMalloc = Some(malloc);
        methods.xFree = Some(free);
        methods.xRealloc = Some(realloc);
        // SAFETY: SQLite copies the struct. It refuses if it is in use already.
        let set =
            unsafe { ffi::sqlite3_config(ffi::SQLITE_CONFIG_MALLOC, &mut methods as *mut ffi::sqlite3_mem_methods) };
        if set != ffi::SQLITE_OK {
            tracing::warn!("SQLite was in use before its memory could be bounded: statements take what they ask for");
            return None;
        }
        Some(own)
    });
}

/// SQLite's own allocator, which is known before SQLite is given ours.
fn own() -> &'static Own {
    static ALWAYS: OnceLock<&'static Own> = OnceLock::new();
    ALWAYS.get_or_init(|| OWN.wait().as_ref().expect("SQLite calls ours only after it was set"))
}

unsafe extern "C" fn malloc(bytes: c_int) -> *mut c_void {
    if !take(bytes as isize) {
        return std::ptr::null_mut();
    }
    // SAFETY: SQLite's own function, called as SQLite calls it.
    let given = unsafe { (own().malloc)(bytes) };
    if given.is_null() {
        give_back(bytes as isize);
    }
    given
}

unsafe extern "C" fn free(piece: *mut c_void) {
    // SAFETY: as above; a piece that SQLite's own function gave, which was not freed yet.
    unsafe {
        give_back((own().size)(piece) as isize);
        (own().free)(piece);
    }
}

unsafe extern "C" fn realloc(piece: *mut c_void, bytes: c_int) -> *mut c_void {
    // SAFETY: as above.
    let more = unsafe { bytes as isize - (own().size)(piece) as isize };
    let refused = more > 0 && bytes as isize >= LARGE_BYTES && interrupted();
    if refused || (more > 0 && !take(more)) {
        return std::ptr::null_mut();
    }
    // SAFETY: as above.
    let given = unsafe { (own().realloc)(piece, bytes) };
    match given.is_null() {
        true if more > 0 => give_back(more),
        false if more < 0 => give_back(-more),
        _ => {}
    }
    given
}

/// Counts so many bytes for the present request, or says that it does not get them.
fn take(bytes: isize) -> bool {
    if bytes >= LARGE_BYTES && interrupted() {
        return false;
    }
    PRESENT.with(|present| {
        if !present.counts.get() {
            return true;
        }
        let taken = present.taken.get() + bytes;
        if taken > present.allowed.get() && present.refuses.get() && !present.grow(taken, bytes) {
            return false;
        }
        present.taken.set(taken);
        true
    })
}

fn give_back(bytes: isize) {
    PRESENT.with(|present| {
        if present.counts.get() {
            present.taken.set(present.taken.get() - bytes);
        }
    });
}

impl Present {
    /// Whether a request may have `taken` bytes, of which the last piece has so many.
    fn grow(&self, taken: isize, piece: isize) -> bool {
        let step = (taken - self.allowed.get()).max(STEP_BYTES);
        let grown = match self.allowed.get() + step <= REQUEST_MAX_BYTES {
            false => Err(Refusal::TooMuch),
            true => ROOM.with_borrow(|room| match room {
                Some(room) => room.take(step as usize).map_err(Refusal::Full),
                None => Ok(()),
            }),
        };
        match grown {
            Ok(()) => {
                self.allowed.set(self.allowed.get() + step);
                true
            }
            Err(_) if piece <= RESERVE_PIECE_BYTES && self.reserve.get() >= piece => {
                self.reserve.set(self.reserve.get() - piece);
                true
            }
            Err(refusal) => {
                REFUSAL.set(Some(refusal));
                false
            }
        }
    }
}

/// Bounds what SQLite takes on this thread until it is dropped; what was taken from the room is given back then.
pub(crate) struct Bounded(PhantomData<*const ()>);

impl Bounded {
    /// For a request whose memory is taken from that room.
    pub(crate) fn begin(room: Option<Arc<dyn ResultRoom>>) -> Bounded {
        PRESENT.with(|present| {
            assert!(!present.counts.get(), "a thread runs one request at a time");
            present.taken.set(0);
            present.allowed.set(FREE_BYTES);
            present.reserve.set(RESERVE_BYTES);
            present.refuses.set(true);
            present.counts.set(true);
        });
        ROOM.set(room);
        REFUSAL.set(None);
        Bounded(PhantomData)
    }
}

impl Drop for Bounded {
    fn drop(&mut self) {
        let taken = PRESENT.with(|present| {
            present.counts.set(false);
            present.allowed.get() - FREE_BYTES
        });
        if let Some(room) = ROOM.take()
            && taken > 0
        {
            room.give_back(taken as usize);
        }
    }
}

/// Runs something of our own, which is refused nothing.
pub(crate) fn unrefused<T>(run: impl FnOnce() -> T) -> T {
    /// Puts back what was, also when a panic passes.
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            PRESENT.with(|present| present.refuses.set(self.0));
        }
    }
    let _restore = Restore(PRESENT.with(|present| present.refuses.replace(false)));
    run()
}

/// Memory of ours that stands for SQLite's, counted as if it were; given back when dropped.
pub(super) struct Held(isize);

/// Counts so many bytes for the present request. `None` if it does not get them.
pub(super) fn hold(bytes: usize) -> Option<Held> {
    let bytes = isize::try_from(bytes).unwrap_or(isize::MAX / 2);
    take(bytes).then_some(Held(bytes))
}

impl Drop for Held {
    fn drop(&mut self) {
        give_back(self.0);
    }
}

/// Why the present request was refused memory, if it was since this was last asked.
pub(crate) fn refusal() -> Option<Refusal> {
    REFUSAL.take()
}

/// Has the C library give large pieces of memory back to the system at once. By itself it soon takes pieces of many megabytes from arenas that it keeps for each thread: after 400 large answers a
/// node held 1.5 GiB of nothing (300 MiB with this).
pub(crate) fn return_large_pieces() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        /// The largest piece that is taken from an arena.
        const LARGE_BYTES: c_int = 256 << 10;
        const M_MMAP_THRESHOLD: c_int = -3;
        unsafe extern "C" {
            fn mallopt(parameter: c_int, value: c_int) -> c_int;
        }
        // SAFETY: a function of glibc's that may be called at any time; the parameter and its value are documented.
        if unsafe { mallopt(M_MMAP_THRESHOLD, LARGE_BYTES) } != 1 {
            tracing::warn!("the C library keeps memory that was freed");
        }
    }
}
