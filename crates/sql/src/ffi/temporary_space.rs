//! A VFS that counts SQLite's temporary files, which have one bound together for the whole process.
//!
//! It is SQLite's default VFS but for `xOpen`. A file that is deleted when it is closed, or has no name, is counted: its methods are ours, which call the
//! real ones of the file that lies behind ours in the same room. It counts as the greatest size it ever reached, until it is closed. A write that does not
//! fit fails with a code of ours, and nothing of it is written. Any other file is opened by the real VFS and has its methods.

use std::cell::UnsafeCell;
use std::ffi::{CStr, c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use rusqlite::ffi;

/// The extended result code of a write that does not fit. SQLite has no extended codes for a full disk, and passes this one on.
pub(crate) const TEMPORARY_FULL: c_int = ffi::SQLITE_FULL | (0x7e << 8);

const NAME: &CStr = c"highwater-counted";

static BYTES_MAX: AtomicU64 = AtomicU64::new(4 << 30);
static BYTES: AtomicU64 = AtomicU64::new(0);

/// Sets how many bytes all temporary files may have together.
pub(crate) fn set_temporary_bytes_max(bytes: u64) {
    BYTES_MAX.store(bytes, Ordering::Relaxed);
}

/// How many they have now, and how many they may have.
pub(crate) fn temporary_bytes() -> (u64, u64) {
    (BYTES.load(Ordering::Relaxed), BYTES_MAX.load(Ordering::Relaxed))
}

/// Takes so many bytes, if there are as many.
fn take(bytes: u64) -> bool {
    let most = BYTES_MAX.load(Ordering::Relaxed);
    BYTES
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |taken| taken.checked_add(bytes).filter(|sum| *sum <= most))
        .is_ok()
}

/// A counted file. The real one lies behind it.
#[repr(C)]
struct Counted {
    base: ffi::sqlite3_file,
    /// The greatest size it ever reached.
    bytes: u64,
}

/// Where the real file lies, from the beginning of ours: as SQLite aligns its files, to 8 bytes.
const REAL_AT: usize = size_of::<Counted>().next_multiple_of(8);

/// The VFS as SQLite keeps it, which writes into it when others are registered, under a mutex of its own.
struct Vfs(UnsafeCell<MaybeUninit<ffi::sqlite3_vfs>>);

// SAFETY: it is filled once before it is registered; afterwards only SQLite writes to it, under its mutex.
unsafe impl Sync for Vfs {}

static OURS: Vfs = Vfs(UnsafeCell::new(MaybeUninit::uninit()));

/// Makes it SQLite's default, once in a process.
///
/// # Errors
/// SQLite's code, if it does not start or has no VFS.
pub(crate) fn count_temporary_files() -> Result<(), c_int> {
    static OUTCOME: OnceLock<Result<(), c_int>> = OnceLock::new();
    // SAFETY: the once-lock lets one thread fill the structure. What SQLite finds stays registered for the life of the process, like ours, and its functions
    // do not look at which VFS they are called with; where they would, `open` gives them the real one. The name is NUL-terminated.
    *OUTCOME.get_or_init(|| unsafe {
        let code = ffi::sqlite3_initialize();
        if code != ffi::SQLITE_OK {
            return Err(code);
        }
        let real = ffi::sqlite3_vfs_find(ptr::null());
        if real.is_null() {
            return Err(ffi::SQLITE_INTERNAL);
        }
        REAL.get_or_init(|| Real(real));
        let ours = OURS.0.get().cast::<ffi::sqlite3_vfs>();
        let bytes = REAL_AT as c_int + (*real).szOsFile;
        let vfs = ffi::sqlite3_vfs {
            szOsFile: bytes,
            zName: NAME.as_ptr(),
            pNext: ptr::null_mut(),
            xOpen: Some(open),
            ..ptr::read(real)
        };
        ptr::write(ours, vfs);
        match ffi::sqlite3_vfs_register(ours, 1) {
            ffi::SQLITE_OK => Ok(()),
            code => Err(code),
        }
    })
}

struct Real(*mut ffi::sqlite3_vfs);

// SAFETY: SQLite's default VFS is never freed, and its functions may be called by any thread.
unsafe impl Send for Real {}
// SAFETY: as above.
unsafe impl Sync for Real {}

static REAL: OnceLock<Real> = OnceLock::new();

unsafe extern "C" fn open(
    _: *mut ffi::sqlite3_vfs,
    path: ffi::sqlite3_filename,
    into: *mut ffi::sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    let Some(Real(real)) = REAL.get() else { return ffi::SQLITE_INTERNAL };
    let is_counted = path.is_null() || flags & ffi::SQLITE_OPEN_DELETEONCLOSE != 0;
    // SAFETY: SQLite gives room for our `szOsFile`, which has ours and a real file behind it. The real VFS is given what SQLite gave, and writes the methods
    // of the file that it opens; without methods a file is not closed.
    unsafe {
        (*into).pMethods = ptr::null();
        let Some(real_open) = (**real).xOpen else { return ffi::SQLITE_INTERNAL };
        if !is_counted {
            return real_open(*real, path, into, flags, out_flags);
        }
        let file = behind(into);
        (*file).pMethods = ptr::null();
        let code = real_open(*real, path, file, flags, out_flags);
        if code == ffi::SQLITE_OK {
            ptr::write(into.cast(), Counted { base: ffi::sqlite3_file { pMethods: &METHODS }, bytes: 0 });
        }
        code
    }
}

/// The real file behind one of ours.
///
/// # Safety
/// The room that SQLite gave for one of our files.
unsafe fn behind(file: *mut ffi::sqlite3_file) -> *mut ffi::sqlite3_file {
    // SAFETY: by the caller: the room has `szOsFile` bytes.
    unsafe { file.cast::<u8>().add(REAL_AT).cast() }
}

/// Only what a temporary file needs: no memory shared with others, no pages that are mapped.
static METHODS: ffi::sqlite3_io_methods = ffi::sqlite3_io_methods {
    iVersion: 1,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(size),
    xLock: Some(lock),
    xUnlock: Some(unlock),
    xCheckReservedLock: Some(check_reserved),
    xFileControl: Some(control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(characteristics),
    xShmMap: None,
    xShmLock: None,
    xShmBarrier: None,
    xShmUnmap: None,
    xFetch: None,
    xUnfetch: None,
};

/// Calls a method of the real file with what SQLite gave. `$none` is answered if it has none, which no VFS of SQLite's leaves out.
macro_rules! pass_on {
    ($file:expr, $method:ident, $none:expr $(, $argument:expr)*) => {{
        let file = behind($file);
        match (*(*file).pMethods).$method {
            Some(method) => method(file $(, $argument)*),
            None => $none,
        }
    }};
}

unsafe extern "C" fn close(file: *mut ffi::sqlite3_file) -> c_int {
    // SAFETY: SQLite closes a file once, and it was opened here.
    unsafe {
        let bytes = std::mem::take(&mut (*file.cast::<Counted>()).bytes);
        let code = pass_on!(file, xClose, ffi::SQLITE_OK);
        BYTES.fetch_sub(bytes, Ordering::Relaxed);
        code
    }
}

unsafe extern "C" fn read(file: *mut ffi::sqlite3_file, into: *mut c_void, count: c_int, at: i64) -> c_int {
    // SAFETY: the file was opened here and is open; so it is in what follows.
    unsafe { pass_on!(file, xRead, ffi::SQLITE_IOERR_READ, into, count, at) }
}

unsafe extern "C" fn write(file: *mut ffi::sqlite3_file, from: *const c_void, count: c_int, at: i64) -> c_int {
    let end = u64::try_from(at).unwrap_or(0) + u64::try_from(count).unwrap_or(0);
    // SAFETY: as for `read`. One thread at a time uses a file.
    unsafe {
        let counted = file.cast::<Counted>();
        if end > (*counted).bytes {
            if !take(end - (*counted).bytes) {
                return TEMPORARY_FULL;
            }
            (*counted).bytes = end;
        }
        pass_on!(file, xWrite, ffi::SQLITE_IOERR_WRITE, from, count, at)
    }
}

unsafe extern "C" fn truncate(file: *mut ffi::sqlite3_file, bytes: i64) -> c_int {
    // SAFETY: as for `read`.
    unsafe { pass_on!(file, xTruncate, ffi::SQLITE_IOERR_TRUNCATE, bytes) }
}

unsafe extern "C" fn sync(file: *mut ffi::sqlite3_file, flags: c_int) -> c_int {
    // SAFETY: as for `read`.
    unsafe { pass_on!(file, xSync, ffi::SQLITE_IOERR_FSYNC, flags) }
}

unsafe extern "C" fn size(file: *mut ffi::sqlite3_file, out: *mut i64) -> c_int {
    // SAFETY: as for `read`.
    unsafe { pass_on!(file, xFileSize, ffi::SQLITE_IOERR_FSTAT, out) }
}

unsafe extern "C" fn lock(file: *mut ffi::sqlite3_file, level: c_int) -> c_int {
    // SAFETY: as for `read`.
    unsafe { pass_on!(file, xLock, ffi::SQLITE_OK, level) }
}

unsafe extern "C" fn unlock(file: *mut ffi::sqlite3_file, level: c_int) -> c_int {
    // SAFETY: as for `read`.
    unsafe { pass_on!(file, xUnlock, ffi::SQLITE_OK, level) }
}

unsafe extern "C" fn check_reserved(file: *mut ffi::sqlite3_file, out: *mut c_int) -> c_int {
    // SAFETY: as for `read`.
    unsafe { pass_on!(file, xCheckReservedLock, ffi::SQLITE_IOERR_CHECKRESERVEDLOCK, out) }
}

unsafe extern "C" fn control(file: *mut ffi::sqlite3_file, what: c_int, argument: *mut c_void) -> c_int {
    // SAFETY: as for `read`.
    unsafe { pass_on!(file, xFileControl, ffi::SQLITE_NOTFOUND, what, argument) }
}

unsafe extern "C" fn sector_size(file: *mut ffi::sqlite3_file) -> c_int {
    // SAFETY: as for `read`.
    unsafe { pass_on!(file, xSectorSize, 4096) }
}

unsafe extern "C" fn characteristics(file: *mut ffi::sqlite3_file) -> c_int {
    // SAFETY: as for `read`.
    unsafe { pass_on!(file, xDeviceCharacteristics, 0) }
}
