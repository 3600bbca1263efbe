//! Where SQLite puts its temporary files, and how many bytes they may have: those of sorts, of temporary tables, and of what it may have to undo.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::ffi::{set_temporary_bytes_max, set_temporary_directory, temporary_bytes};

static FOLDER: OnceLock<PathBuf> = OnceLock::new();

/// Has SQLite put its temporary files into a folder, which must be there, for the whole process. To be called before the first database is opened.
///
/// # Errors
/// If another folder was set before, or the path has a NUL byte in it. What was wanted and found, to be shown.
pub fn set_temporary_folder(folder: &Path) -> Result<(), String> {
    let mut outcome = Ok(());
    let set = FOLDER.get_or_init(|| {
        outcome = set_temporary_directory(folder);
        folder.to_path_buf()
    });
    outcome?;
    if set != folder {
        return Err(format!(
            "temporary files go to {} in this process, and {} was asked for: there is one folder for a process",
            set.display(),
            folder.display()
        ));
    }
    Ok(())
}

/// Sets how many bytes the temporary files of the whole process may have together, of all databases; 4 GiB unless it is set. Each counts as the greatest size it
/// reached, until it is closed. A statement that needs more fails: `TEMPORARY_SPACE_FULL`. Files in a VFS that a database was given by name are not counted.
pub fn set_temporary_space(bytes_max: u64) {
    set_temporary_bytes_max(bytes_max);
}

/// How many bytes the temporary files of the whole process have now.
pub fn temporary_space_used() -> u64 {
    temporary_bytes().0
}
