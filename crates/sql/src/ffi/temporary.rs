//! SQLite's variable for the folder of temporary files.

use std::ffi::{CString, c_int};
use std::path::Path;

use rusqlite::ffi;

/// Sets it. The caller sees to it that this happens once.
pub(crate) fn set_temporary_directory(folder: &Path) -> Result<(), String> {
    let bytes = folder.as_os_str().as_encoded_bytes();
    let path = CString::new(bytes).map_err(|_| format!("a path with a NUL byte in it: {}", folder.display()))?;
    super::memory::install();
    let length = path.as_bytes_with_nul().len();
    // SAFETY: the memory is SQLite's own and is never freed, as it wants it. SQLite reads the variable when it makes a temporary file, under this mutex of
    // its own (SQLITE_MUTEX_STATIC_VFS1), which is held while it is written.
    unsafe {
        if ffi::sqlite3_initialize() != ffi::SQLITE_OK {
            return Err("SQLite does not start".to_string());
        }
        let copy = ffi::sqlite3_malloc64(length as u64).cast::<u8>();
        if copy.is_null() {
            return Err("out of memory".to_string());
        }
        std::ptr::copy_nonoverlapping(path.as_ptr().cast(), copy, length);
        let mutex = ffi::sqlite3_mutex_alloc(TEMPORARY_DIRECTORY_MUTEX);
        ffi::sqlite3_mutex_enter(mutex);
        ffi::sqlite3_temp_directory = copy.cast();
        ffi::sqlite3_mutex_leave(mutex);
    }
    Ok(())
}

/// SQLite's SQLITE_MUTEX_STATIC_TEMPDIR, another name of SQLITE_MUTEX_STATIC_VFS1.
const TEMPORARY_DIRECTORY_MUTEX: c_int = 11;
