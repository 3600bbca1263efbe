//! The VFS by which SQLite reaches simulated folders. With `vfs/`, the only unsafe code of this crate.
//!
//! What must hold, and is kept here: a file's body is made by `xOpen` and freed by `xClose`, and SQLite calls nothing in between with another pointer;
//! strings from SQLite are NUL-terminated; no function unwinds into C.

mod file;
mod shared;

use std::ffi::{CStr, c_char, c_int};
use std::io;
use std::ptr;
use std::sync::Once;

use highwater_log::mem::MemIo;
use highwater_log::{Io, IoFile};
use rusqlite::ffi;

use crate::folder::Mounted;
use file::{Body, File};
pub(crate) use shared::Shared;

/// Its name.
pub(crate) const NAME: &CStr = c"highwater-simulated";

/// The clock stands still, at the beginning of 2020: milliseconds since noon in Greenwich on November 24, 4714 BC.
const NOW_MS: i64 = 24_588_495 * 8_640_000;

/// Makes SQLite know it.
pub(crate) fn register() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let vfs = Box::new(ffi::sqlite3_vfs {
            iVersion: 2,
            szOsFile: size_of::<File>() as c_int,
            mxPathname: 512,
            pNext: ptr::null_mut(),
            zName: NAME.as_ptr(),
            pAppData: ptr::null_mut(),
            xOpen: Some(open),
            xDelete: Some(delete),
            xAccess: Some(access),
            xFullPathname: Some(full_pathname),
            xDlOpen: None,
            xDlError: None,
            xDlSym: None,
            xDlClose: None,
            xRandomness: Some(randomness),
            xSleep: Some(sleep),
            xCurrentTime: Some(current_time),
            xGetLastError: Some(last_error),
            xCurrentTimeInt64: Some(current_time_ms),
            xSetSystemCall: None,
            xGetSystemCall: None,
            xNextSystemCall: None,
        });
        // SAFETY: the structure is never freed, and its functions are those of this module.
        let code = unsafe { ffi::sqlite3_vfs_register(Box::leak(vfs), 0) };
        assert_eq!(code, ffi::SQLITE_OK, "SQLite takes a VFS");
    });
}

/// SQLite's code for a failure of the disk.
fn code(error: &io::Error, otherwise: c_int) -> c_int {
    match error.kind() {
        io::ErrorKind::StorageFull => ffi::SQLITE_FULL,
        _ => otherwise,
    }
}

/// The folder and the name of a path from SQLite.
///
/// # Safety
/// The path is NUL-terminated.
unsafe fn find(path: *const c_char) -> Option<(std::sync::Arc<Mounted>, String)> {
    // SAFETY: by the caller.
    let path = unsafe { CStr::from_ptr(path) }.to_str().ok()?;
    Mounted::find(path).map(|(folder, name)| (folder, name.to_owned()))
}

unsafe extern "C" fn open(
    _: *mut ffi::sqlite3_vfs,
    path: ffi::sqlite3_filename,
    into: *mut ffi::sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    // SAFETY: SQLite gives room for a `File`. Without methods it is not closed.
    unsafe { (*into).pMethods = ptr::null() };
    let body = if path.is_null() {
        // A temporary file has a disk of its own.
        let Ok(file) = MemIo::new().create("temporary") else { return ffi::SQLITE_CANTOPEN };
        Body::temporary(file)
    } else {
        // SAFETY: the path is SQLite's.
        let Some((folder, name)) = (unsafe { find(path) }) else { return ffi::SQLITE_CANTOPEN };
        let (file, made) = match folder.io().open(&name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && flags & ffi::SQLITE_OPEN_CREATE != 0 => {
                (folder.io().create(&name), true)
            }
            opened => (opened, false),
        };
        let Ok(file) = file else { return ffi::SQLITE_CANTOPEN };
        // As on Unix: the first sync of a new log or journal makes its name durable, too; that of a database does not.
        let names = made && flags & (ffi::SQLITE_OPEN_WAL | ffi::SQLITE_OPEN_MAIN_JOURNAL) != 0;
        Body::named(file, folder, name, names, flags & ffi::SQLITE_OPEN_DELETEONCLOSE != 0)
    };
    // SAFETY: as above; `out_flags` is null or points to an integer.
    unsafe {
        File::init(into.cast(), body);
        if !out_flags.is_null() {
            *out_flags = flags;
        }
    }
    ffi::SQLITE_OK
}

unsafe extern "C" fn delete(_: *mut ffi::sqlite3_vfs, path: *const c_char, sync: c_int) -> c_int {
    // SAFETY: the path is SQLite's.
    let Some((folder, name)) = (unsafe { find(path) }) else { return ffi::SQLITE_IOERR_DELETE_NOENT };
    match folder.io().remove(&name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return ffi::SQLITE_IOERR_DELETE_NOENT,
        Err(_) => return ffi::SQLITE_IOERR_DELETE,
        Ok(()) => {}
    }
    match sync != 0 && folder.io().sync_dir().is_err() {
        true => ffi::SQLITE_IOERR_DIR_FSYNC,
        false => ffi::SQLITE_OK,
    }
}

unsafe extern "C" fn access(_: *mut ffi::sqlite3_vfs, path: *const c_char, flags: c_int, out: *mut c_int) -> c_int {
    // SAFETY: the path is SQLite's.
    let Some((folder, name)) = (unsafe { find(path) }) else { return ffi::SQLITE_IOERR_ACCESS };
    let there = match folder.io().open(&name).and_then(|file| file.len()) {
        // As on Unix, an empty file counts as none when SQLite asks whether there is one.
        Ok(bytes) => flags != ffi::SQLITE_ACCESS_EXISTS || bytes > 0,
        Err(error) if error.kind() == io::ErrorKind::NotFound => false,
        Err(_) => return ffi::SQLITE_IOERR_ACCESS,
    };
    // SAFETY: `out` points to an integer.
    unsafe { *out = c_int::from(there) };
    ffi::SQLITE_OK
}

unsafe extern "C" fn full_pathname(
    _: *mut ffi::sqlite3_vfs,
    path: *const c_char,
    room: c_int,
    out: *mut c_char,
) -> c_int {
    // SAFETY: the path is SQLite's, and `out` has `room` bytes.
    unsafe {
        let path = CStr::from_ptr(path).to_bytes_with_nul();
        if path.len() > room as usize {
            return ffi::SQLITE_CANTOPEN;
        }
        ptr::copy_nonoverlapping(path.as_ptr(), out.cast(), path.len());
    }
    ffi::SQLITE_OK
}

unsafe extern "C" fn randomness(_: *mut ffi::sqlite3_vfs, count: c_int, out: *mut c_char) -> c_int {
    // SAFETY: `out` has `count` bytes. Nothing is drawn from this VFS but names of temporary files, which it does not give any.
    unsafe { ptr::write_bytes(out, 7, count as usize) };
    count
}

/// Whoever would wait for a lock is alone: nobody gives it back meanwhile.
unsafe extern "C" fn sleep(_: *mut ffi::sqlite3_vfs, microseconds: c_int) -> c_int {
    microseconds
}

unsafe extern "C" fn current_time(_: *mut ffi::sqlite3_vfs, out: *mut f64) -> c_int {
    // SAFETY: `out` points to a double.
    unsafe { *out = NOW_MS as f64 / 86_400_000.0 };
    ffi::SQLITE_OK
}

unsafe extern "C" fn current_time_ms(_: *mut ffi::sqlite3_vfs, out: *mut i64) -> c_int {
    // SAFETY: `out` points to an integer.
    unsafe { *out = NOW_MS };
    ffi::SQLITE_OK
}

unsafe extern "C" fn last_error(_: *mut ffi::sqlite3_vfs, _: c_int, _: *mut c_char) -> c_int {
    0
}
