//! A small disk for each node: a memory file system on its folder, in a mount name space of this command and what it starts, which ends with them.
//!
//! Such a disk can be full at a word: it is made as large as what it holds, and large again later.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use rustix::fs::statvfs;
use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_change, mount_remount, unmount};
use rustix::process::{getgid, getuid};
use rustix::thread::{UnshareFlags, unshare_unsafe};

use super::folders::copy;
use crate::chaos::eprint;

/// Half of the machine's memory, for each: more than any run needs. Only what is written takes any.
const LARGE: &std::ffi::CStr = c"size=50%";

/// How often a disk is made as small as what it holds before it is given up: whoever writes to it at that moment is in the way.
const ATTEMPTS: u32 = 100;

/// Gives each of these folders a disk of its own. Must be called before any thread is started.
pub(super) fn mount_all<'a>(folders: impl Iterator<Item = &'a Path>) -> anyhow::Result<()> {
    enter_name_space().context("no mount name space can be had")?;
    for folder in folders {
        mount("tmpfs", folder, "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, LARGE)
            .with_context(|| format!("no memory file system at {}", folder.display()))?;
    }
    Ok(())
}

/// A name space in which this process may mount, as root by itself, as anybody else as root of a user name space of its own.
fn enter_name_space() -> io::Result<()> {
    let (user, group) = (getuid(), getgid());
    // SAFETY: only file tables must not be unshared under a thread's feet; this shares them as before.
    let alone = unsafe { unshare_unsafe(UnshareFlags::NEWNS) };
    if alone.is_err() {
        // SAFETY: as above.
        unsafe { unshare_unsafe(UnshareFlags::NEWUSER | UnshareFlags::NEWNS) }?;
        fs::write("/proc/self/setgroups", "deny")?;
        fs::write("/proc/self/uid_map", format!("0 {} 1", user.as_raw()))?;
        fs::write("/proc/self/gid_map", format!("0 {} 1", group.as_raw()))?;
    }
    // What is mounted here is nobody else's business.
    mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE)?;
    Ok(())
}

/// Whether that folder is a disk of its own.
pub(super) fn is_disk(folder: &Path) -> bool {
    let device = |path: &Path| fs::metadata(path).map(|metadata| metadata.dev()).ok();
    folder.parent().is_some_and(|above| device(above) != device(folder))
}

/// Makes the disk as large as what it holds.
pub(super) fn fill(disk: &Path) -> anyhow::Result<()> {
    let mut last = None;
    for _ in 0..ATTEMPTS {
        let found = statvfs(disk).with_context(|| disk.display().to_string())?;
        let held = (found.f_blocks - found.f_bfree) * found.f_frsize;
        match mount_remount(disk, MountFlags::NOSUID | MountFlags::NODEV, format!("size={held}")) {
            Ok(()) => return Ok(()),
            Err(error) => last = Some(error),
        }
    }
    Err(last.expect("it was tried")).with_context(|| format!("{} cannot be made smaller", disk.display()))
}

/// Makes the disk large again.
pub(super) fn free(disk: &Path) -> anyhow::Result<()> {
    mount_remount(disk, MountFlags::NOSUID | MountFlags::NODEV, LARGE)
        .with_context(|| format!("{} cannot be made larger", disk.display()))
}

/// Takes the disks away that were put on folders below this one; what they hold is copied to where they were, or is gone. Nothing may run on them any more.
pub(crate) fn release(folder: &Path, keep: bool) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    let disks: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(|path| is_disk(path)).collect();
    for disk in disks {
        let kept = disk.with_extension("kept");
        let done = || -> io::Result<()> {
            if keep {
                copy(&disk, &kept)?;
            }
            unmount(&disk, UnmountFlags::empty())?;
            if keep {
                fs::remove_dir(&disk)?;
                fs::rename(&kept, &disk)?;
            }
            Ok(())
        };
        if let Err(error) = done() {
            eprint(&format!("the disk at {} cannot be taken away: {error}", disk.display()));
        }
    }
}
