//! An open file, as SQLite calls it.

use std::ffi::{c_int, c_void};
use std::io;
use std::ptr;
use std::slice;
use std::sync::{Arc, Mutex};

use highwater_log::mem::MemFile;
use highwater_log::{Io, IoFile};
use rusqlite::ffi;

use super::code;
use super::shared::{Level, Owner, Shared};
use crate::folder::{Mounted, lock};

/// What SQLite holds of a file: its methods, and what they work on.
#[repr(C)]
pub(super) struct File {
    base: ffi::sqlite3_file,
    body: *mut Body,
}

/// What the methods work on.
pub(super) struct Body {
    file: Arc<MemFile>,
    /// Where it lies; `None` for a temporary file.
    place: Option<(Arc<Mounted>, String)>,
    /// The next sync makes its name durable.
    sync_name: bool,
    remove_on_close: bool,
    shared: Arc<Mutex<Shared>>,
    owner: Owner,
    maps: bool,
}

impl Body {
    pub(super) fn temporary(file: Arc<MemFile>) -> Body {
        let shared: Arc<Mutex<Shared>> = Arc::default();
        let owner = lock(&shared).owner();
        Body { file, place: None, sync_name: false, remove_on_close: false, shared, owner, maps: false }
    }

    pub(super) fn named(
        file: Arc<MemFile>,
        folder: Arc<Mounted>,
        name: String,
        sync_name: bool,
        remove_on_close: bool,
    ) -> Body {
        let shared = folder.shared(&name);
        let owner = lock(&shared).owner();
        Body { file, place: Some((folder, name)), sync_name, remove_on_close, shared, owner, maps: false }
    }

    fn read(&self, at: i64, buffer: &mut [u8]) -> c_int {
        match self.file.read_at(at as u64, buffer) {
            Err(_) => ffi::SQLITE_IOERR_READ,
            Ok(read) if read == buffer.len() => ffi::SQLITE_OK,
            Ok(read) => {
                buffer[read..].fill(0);
                ffi::SQLITE_IOERR_SHORT_READ
            }
        }
    }

    fn sync(&mut self) -> c_int {
        if self.file.sync_data().is_err() {
            return ffi::SQLITE_IOERR_FSYNC;
        }
        match &self.place {
            Some((folder, _)) if self.sync_name => match folder.io().sync_dir() {
                Ok(()) => self.sync_name = false,
                Err(_) => return ffi::SQLITE_IOERR_DIR_FSYNC,
            },
            _ => {}
        }
        ffi::SQLITE_OK
    }

    fn unmap(&mut self) {
        if std::mem::take(&mut self.maps) {
            lock(&self.shared).unmap(self.owner);
        }
    }
}

static METHODS: ffi::sqlite3_io_methods = ffi::sqlite3_io_methods {
    iVersion: 2,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(size),
    xLock: Some(take_lock),
    xUnlock: Some(unlock),
    xCheckReservedLock: Some(check_reserved),
    xFileControl: Some(control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(characteristics),
    xShmMap: Some(shm_map),
    xShmLock: Some(shm_lock),
    xShmBarrier: Some(shm_barrier),
    xShmUnmap: Some(shm_unmap),
    xFetch: None,
    xUnfetch: None,
};

impl File {
    /// Makes an open file of the room that SQLite gave.
    ///
    /// # Safety
    /// `into` points to room for a `File`.
    pub(super) unsafe fn init(into: *mut File, body: Body) {
        // SAFETY: by the caller.
        unsafe {
            ptr::write(
                into,
                File { base: ffi::sqlite3_file { pMethods: &METHODS }, body: Box::into_raw(Box::new(body)) },
            )
        };
    }
}

/// What a file's methods work on.
///
/// # Safety
/// The file was opened here and is not closed; SQLite uses it from one thread at a time.
unsafe fn body<'a>(file: *mut ffi::sqlite3_file) -> &'a mut Body {
    // SAFETY: by the caller.
    unsafe { &mut *(*file.cast::<File>()).body }
}

unsafe extern "C" fn close(file: *mut ffi::sqlite3_file) -> c_int {
    // SAFETY: SQLite closes a file once, and it was opened here.
    let mut body = unsafe { Box::from_raw((*file.cast::<File>()).body) };
    body.unmap();
    lock(&body.shared).set_level(body.owner, Level::None);
    if let (true, Some((folder, name))) = (body.remove_on_close, &body.place) {
        // It is of no use to anybody if it stays.
        let _ = folder.io().remove(name);
    }
    ffi::SQLITE_OK
}

unsafe extern "C" fn read(file: *mut ffi::sqlite3_file, into: *mut c_void, count: c_int, at: i64) -> c_int {
    // SAFETY: the file is open, and `into` has `count` bytes.
    unsafe { body(file).read(at, slice::from_raw_parts_mut(into.cast(), count as usize)) }
}

unsafe extern "C" fn write(file: *mut ffi::sqlite3_file, from: *const c_void, count: c_int, at: i64) -> c_int {
    // SAFETY: the file is open, and `from` has `count` bytes.
    let (body, bytes) = unsafe { (body(file), slice::from_raw_parts(from.cast(), count as usize)) };
    done(body.file.write_at(at as u64, bytes), ffi::SQLITE_IOERR_WRITE)
}

unsafe extern "C" fn truncate(file: *mut ffi::sqlite3_file, bytes: i64) -> c_int {
    // SAFETY: the file is open.
    let body = unsafe { body(file) };
    done(body.file.set_len(bytes as u64), ffi::SQLITE_IOERR_TRUNCATE)
}

unsafe extern "C" fn sync(file: *mut ffi::sqlite3_file, _: c_int) -> c_int {
    // SAFETY: the file is open.
    unsafe { body(file).sync() }
}

unsafe extern "C" fn size(file: *mut ffi::sqlite3_file, out: *mut i64) -> c_int {
    // SAFETY: the file is open.
    match unsafe { body(file) }.file.len() {
        Ok(bytes) => {
            // SAFETY: `out` points to an integer.
            unsafe { *out = bytes as i64 };
            ffi::SQLITE_OK
        }
        Err(_) => ffi::SQLITE_IOERR_FSTAT,
    }
}

unsafe extern "C" fn take_lock(file: *mut ffi::sqlite3_file, level: c_int) -> c_int {
    // SAFETY: the file is open.
    let body = unsafe { body(file) };
    granted(lock(&body.shared).raise(body.owner, Level::of(level)))
}

unsafe extern "C" fn unlock(file: *mut ffi::sqlite3_file, level: c_int) -> c_int {
    // SAFETY: the file is open.
    let body = unsafe { body(file) };
    lock(&body.shared).set_level(body.owner, Level::of(level));
    ffi::SQLITE_OK
}

unsafe extern "C" fn check_reserved(file: *mut ffi::sqlite3_file, out: *mut c_int) -> c_int {
    // SAFETY: the file is open, and `out` points to an integer.
    unsafe { *out = c_int::from(lock(&body(file).shared).is_reserved()) };
    ffi::SQLITE_OK
}

unsafe extern "C" fn control(_: *mut ffi::sqlite3_file, _: c_int, _: *mut c_void) -> c_int {
    ffi::SQLITE_NOTFOUND
}

/// SQLite's default, as on Unix.
unsafe extern "C" fn sector_size(_: *mut ffi::sqlite3_file) -> c_int {
    4096
}

/// As on Unix: what is beside a torn write stays.
unsafe extern "C" fn characteristics(_: *mut ffi::sqlite3_file) -> c_int {
    ffi::SQLITE_IOCAP_POWERSAFE_OVERWRITE
}

unsafe extern "C" fn shm_map(
    file: *mut ffi::sqlite3_file,
    region: c_int,
    bytes: c_int,
    extend: c_int,
    out: *mut *mut c_void,
) -> c_int {
    // SAFETY: the file is open.
    let body = unsafe { body(file) };
    body.maps = true;
    let at = lock(&body.shared).map(body.owner, region as usize, bytes as usize, extend != 0);
    // SAFETY: `out` points to a pointer.
    unsafe { *out = at.cast() };
    ffi::SQLITE_OK
}

unsafe extern "C" fn shm_lock(file: *mut ffi::sqlite3_file, first: c_int, count: c_int, flags: c_int) -> c_int {
    // SAFETY: the file is open.
    let body = unsafe { body(file) };
    let slots = first as usize..(first + count) as usize;
    let mut shared = lock(&body.shared);
    if flags & ffi::SQLITE_SHM_UNLOCK != 0 {
        shared.unlock_slots(body.owner, slots);
        return ffi::SQLITE_OK;
    }
    granted(shared.lock_slots(body.owner, slots, flags & ffi::SQLITE_SHM_EXCLUSIVE != 0))
}

unsafe extern "C" fn shm_barrier(_: *mut ffi::sqlite3_file) {
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
}

unsafe extern "C" fn shm_unmap(file: *mut ffi::sqlite3_file, _: c_int) -> c_int {
    // SAFETY: the file is open.
    unsafe { body(file).unmap() };
    ffi::SQLITE_OK
}

fn done(result: io::Result<()>, otherwise: c_int) -> c_int {
    result.map_or_else(|error| code(&error, otherwise), |()| ffi::SQLITE_OK)
}

fn granted(granted: bool) -> c_int {
    if granted { ffi::SQLITE_OK } else { ffi::SQLITE_BUSY }
}
