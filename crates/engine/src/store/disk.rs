//! Define what a disk can do, and do it in a folder.

use std::collections::BTreeMap;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{Error, ErrorKind, Read, Result, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// A flat folder of files. After a power cut a file holds what was synced; what was appended since
/// may be there, in part, or not at all.
pub trait Disk: Send {
    /// Append to a file, which is made if it is not there. Durable only after [`Disk::sync`].
    fn append(&mut self, name: &str, bytes: &[u8]) -> Result<()>;

    /// Make durable what was appended, and the file's name.
    fn sync(&mut self, name: &str) -> Result<()>;

    /// Give a file new contents, all or nothing, durable on return. Nobody but its owner may read
    /// it.
    fn replace(&mut self, name: &str, bytes: &[u8]) -> Result<()>;

    /// Cut a file to a length, durable on return.
    fn cut(&mut self, name: &str, length: u64) -> Result<()>;

    /// The contents of a file; `None` if there is none.
    fn read(&self, name: &str) -> Result<Option<Vec<u8>>>;

    /// At most so many bytes of a file, from one on: fewer where it ends, none if there is no such
    /// file.
    fn part(&self, name: &str, from: u64, most: usize) -> Result<Vec<u8>>;

    /// The names of all files, ascending.
    fn list(&self) -> Result<Vec<String>>;

    /// Remove a file. After a power cut it may be there again.
    fn remove(&mut self, name: &str) -> Result<()>;

    /// Which permissions a file has, where there are such things.
    fn mode(&self, _name: &str) -> Result<Option<u32>> {
        Ok(None)
    }

    /// A name that is another one whenever the power has failed in between, so that what was not
    /// synced may be lost; `None`: that cannot be told.
    fn session(&self) -> Option<String> {
        None
    }
}

impl<D: Disk + ?Sized> Disk for &mut D {
    fn append(&mut self, name: &str, bytes: &[u8]) -> Result<()> {
        (**self).append(name, bytes)
    }

    fn sync(&mut self, name: &str) -> Result<()> {
        (**self).sync(name)
    }

    fn replace(&mut self, name: &str, bytes: &[u8]) -> Result<()> {
        (**self).replace(name, bytes)
    }

    fn cut(&mut self, name: &str, length: u64) -> Result<()> {
        (**self).cut(name, length)
    }

    fn read(&self, name: &str) -> Result<Option<Vec<u8>>> {
        (**self).read(name)
    }

    fn part(&self, name: &str, from: u64, most: usize) -> Result<Vec<u8>> {
        (**self).part(name, from, most)
    }

    fn list(&self) -> Result<Vec<String>> {
        (**self).list()
    }

    fn remove(&mut self, name: &str) -> Result<()> {
        (**self).remove(name)
    }

    fn mode(&self, name: &str) -> Result<Option<u32>> {
        (**self).mode(name)
    }

    fn session(&self) -> Option<String> {
        (**self).session()
    }
}

/// A folder on a real disk. One process at a time may use it: a second one is refused.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    /// Files that are appended to.
    open: BTreeMap<String, File>,
    /// Held as long as this lives.
    _lock: File,
}

const TEMPORARY: &str = ".tmp";
const LOCK: &str = ".lock";

impl Folder {
    /// Make the folder at this path if it is not there: for its owner alone. It is not locked.
    pub fn make(path: &Path) -> Result<()> {
        secluded().recursive(true).create(path)
    }

    /// The folder at this path, made if it is not there: for its owner alone.
    pub fn open(path: &Path) -> Result<Self> {
        Folder::make(path)?;
        let mut lock = private().create(true).truncate(false).write(true).open(path.join(LOCK))?;
        lock.try_lock().map_err(|_| Error::new(ErrorKind::WouldBlock, in_use(path)))?;
        // for whoever finds it locked
        lock.set_len(0).and_then(|()| lock.write_all(std::process::id().to_string().as_bytes()))?;
        if let Some(parent) = path.parent().filter(|p| !p.as_os_str().is_empty()) {
            sync_folder(parent)?;
        }
        Ok(Folder { path: path.to_path_buf(), open: BTreeMap::new(), _lock: lock })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn file(&mut self, name: &str) -> Result<&mut File> {
        if !self.open.contains_key(name) {
            let path = self.path.join(name);
            let fresh = !path.exists();
            let file = private().create(true).append(true).open(path)?;
            if fresh {
                sync_folder(&self.path)?;
            }
            self.open.insert(name.to_owned(), file);
        }
        self.open.get_mut(name).ok_or_else(|| Error::from(ErrorKind::NotFound))
    }
}

/// Who uses a folder, and what to do about it.
fn in_use(path: &Path) -> String {
    let said = std::fs::read_to_string(path.join(LOCK)).unwrap_or_default();
    let owner: Option<u32> = said.parse().ok();
    let (owner, remedy) = match owner {
        Some(pid) if pid == std::process::id() => {
            ("this process".into(), "let go of the first one")
        }
        Some(pid) => (format!("process {pid}"), "end that process"),
        None => ("another process".into(), "end that process"),
    };
    format!("{} is in use by {owner}: {remedy}, or use another folder", path.display())
}

/// Folders that only their owner can look into.
fn secluded() -> DirBuilder {
    #[cfg(unix)]
    {
        use std::os::unix::fs::DirBuilderExt;
        let mut builder = DirBuilder::new();
        builder.mode(0o700);
        builder
    }
    #[cfg(not(unix))]
    DirBuilder::new()
}

/// Files that only their owner can read.
fn private() -> OpenOptions {
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        let mut options = OpenOptions::new();
        options.mode(0o600);
        options
    }
    #[cfg(not(unix))]
    OpenOptions::new()
}

/// Make the names in a folder durable.
pub(crate) fn sync_folder(path: &Path) -> Result<()> {
    if cfg!(unix) { File::open(path)?.sync_all() } else { Ok(()) }
}

impl Disk for Folder {
    /// The name of this machine's start, where the system has one: what was written without a sync
    /// survives a process, not the machine.
    fn session(&self) -> Option<String> {
        let name = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        Some(name.trim().to_owned()).filter(|name| !name.is_empty())
    }

    fn append(&mut self, name: &str, bytes: &[u8]) -> Result<()> {
        self.file(name)?.write_all(bytes)
    }

    fn sync(&mut self, name: &str) -> Result<()> {
        self.file(name)?.sync_data()
    }

    fn replace(&mut self, name: &str, bytes: &[u8]) -> Result<()> {
        self.open.remove(name);
        let temporary = self.path.join(format!("{name}{TEMPORARY}"));
        let mut file = private().create(true).truncate(true).write(true).open(&temporary)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        std::fs::rename(&temporary, self.path.join(name))?;
        sync_folder(&self.path)
    }

    fn cut(&mut self, name: &str, length: u64) -> Result<()> {
        let file = self.file(name)?;
        file.set_len(length)?;
        file.sync_all()
    }

    fn read(&self, name: &str) -> Result<Option<Vec<u8>>> {
        match std::fs::read(self.path.join(name)) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn part(&self, name: &str, from: u64, most: usize) -> Result<Vec<u8>> {
        let mut file = match File::open(self.path.join(name)) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            opened => opened?,
        };
        file.seek(SeekFrom::Start(from))?;
        let mut bytes = Vec::with_capacity(most);
        file.take(most as u64).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn list(&self) -> Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&self.path)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if !name.ends_with(TEMPORARY) && name != LOCK {
                names.push(name);
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    fn remove(&mut self, name: &str) -> Result<()> {
        self.open.remove(name);
        match std::fs::remove_file(self.path.join(name)) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    #[cfg(unix)]
    fn mode(&self, name: &str) -> Result<Option<u32>> {
        use std::os::unix::fs::PermissionsExt;
        Ok(Some(std::fs::metadata(self.path.join(name))?.permissions().mode() & 0o777))
    }
}
