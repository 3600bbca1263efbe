//! Folders on simulated disks, and the paths by which SQLite knows them. Each thread has its own: a run is on one thread, and two runs use equal paths.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::CStr;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use highwater_log::mem::MemIo;
use highwater_log::{Io, IoFile};
use highwater_sql::Folder;

use crate::vfs::{self, Shared};

thread_local! {
    static MOUNTED: RefCell<BTreeMap<String, Arc<Mounted>>> = const { RefCell::new(BTreeMap::new()) };
}

/// A folder as one process sees it.
#[derive(Debug)]
pub struct Mounted {
    io: MemIo,
    /// What connections to each file share: locks, and the index of SQLite's log. It is gone with the process.
    shared: Mutex<BTreeMap<String, Arc<Mutex<Shared>>>>,
}

impl Mounted {
    /// Lets this thread's SQLite find a folder at a path, in place of what it found there before.
    pub fn mount(path: &str, io: MemIo) -> Arc<Mounted> {
        vfs::register();
        let mounted = Arc::new(Mounted { io, shared: Mutex::default() });
        MOUNTED.with_borrow_mut(|all| all.insert(path.to_owned(), Arc::clone(&mounted)));
        mounted
    }

    /// The folder and the name of a file.
    pub(crate) fn find(path: &str) -> Option<(Arc<Mounted>, &str)> {
        let (folder, name) = path.rsplit_once('/')?;
        MOUNTED.with_borrow(|all| Some((Arc::clone(all.get(folder)?), name)))
    }

    /// The disk.
    pub(crate) fn io(&self) -> &MemIo {
        &self.io
    }

    /// What connections to a file share.
    pub(crate) fn shared(&self, name: &str) -> Arc<Mutex<Shared>> {
        Arc::clone(lock(&self.shared).entry(name.to_owned()).or_default())
    }
}

impl Folder for Mounted {
    fn vfs(&self) -> Option<&'static CStr> {
        Some(vfs::NAME)
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn IoFile>> {
        Ok(self.io.open(name)?)
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn IoFile>> {
        Ok(self.io.create(name)?)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.io.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.io.remove(name)
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.io.sync_dir()
    }
}

/// Locks, whatever panicked: a run that panics is over and reports that, not this.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
