//! The files of the log, behind a port that the simulator replaces.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;

/// Files that only grow at their end.
#[async_trait]
pub trait LogFiles: Send + Sync + 'static {
    /// The names of all files.
    async fn list(&self) -> io::Result<Vec<String>>;

    /// Up to `length` bytes from `offset`. Fewer only at the end of the file.
    async fn read(&self, name: &str, offset: u64, length: usize) -> io::Result<Bytes>;

    /// The size of a file.
    async fn size(&self, name: &str) -> io::Result<u64>;

    /// Creates an empty file. It survives a crash from now on.
    async fn create(&self, name: &str) -> io::Result<()>;

    /// Writes at the end of a file and syncs it. If this fails, any part may have been written.
    async fn append(&self, name: &str, bytes: Bytes) -> io::Result<()>;

    /// Cuts a file off and syncs it.
    async fn truncate(&self, name: &str, size: u64) -> io::Result<()>;

    /// Deletes a file.
    async fn remove(&self, name: &str) -> io::Result<()>;
}

/// Files in a directory.
pub(crate) struct DiskFiles {
    directory: PathBuf,
    open: Arc<Mutex<HashMap<String, Arc<File>>>>,
}

impl DiskFiles {
    /// Opens the directory, and creates it if it does not exist.
    pub(crate) fn open(directory: &Path) -> io::Result<Self> {
        std::fs::create_dir_all(directory)?;
        sync_directory(directory.parent().unwrap_or(directory))?;
        Ok(Self {
            directory: directory.to_owned(),
            open: Arc::default(),
        })
    }

    async fn run<T: Send + 'static>(
        &self,
        name: &str,
        job: impl FnOnce(&mut &File) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let path = self.directory.join(name);
        let (open, name) = (Arc::clone(&self.open), name.to_owned());
        blocking(move || {
            let file = {
                let mut open = lock(&open);
                if let Some(file) = open.get(&name) {
                    Arc::clone(file)
                } else {
                    let file = OpenOptions::new().read(true).append(true).open(&path)?;
                    Arc::clone(open.entry(name).or_insert(Arc::new(file)))
                }
            };
            job(&mut file.as_ref())
        })
        .await
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a job that blocks its thread.
async fn blocking<T: Send + 'static>(
    job: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    match tokio::task::spawn_blocking(job).await {
        Ok(result) => result,
        Err(error) => Err(io::Error::other(error)),
    }
}

/// Makes created and deleted files of a directory survive a crash.
pub(crate) fn sync_directory(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

#[async_trait]
impl LogFiles for DiskFiles {
    async fn list(&self) -> io::Result<Vec<String>> {
        let directory = self.directory.clone();
        blocking(move || {
            let mut names = Vec::new();
            for entry in std::fs::read_dir(directory)? {
                names.extend(entry?.file_name().into_string());
            }
            Ok(names)
        })
        .await
    }

    async fn read(&self, name: &str, offset: u64, length: usize) -> io::Result<Bytes> {
        // Reads have a handle of their own, because they move its position.
        let path = self.directory.join(name);
        blocking(move || {
            let mut file = File::open(path)?;
            file.seek(SeekFrom::Start(offset))?;
            let mut bytes = Vec::with_capacity(length.min(64 * 1024 * 1024));
            file.take(length as u64).read_to_end(&mut bytes)?;
            Ok(Bytes::from(bytes))
        })
        .await
    }

    async fn size(&self, name: &str) -> io::Result<u64> {
        self.run(name, |file| Ok(file.metadata()?.len())).await
    }

    async fn create(&self, name: &str) -> io::Result<()> {
        let directory = self.directory.clone();
        let path = directory.join(name);
        blocking(move || {
            OpenOptions::new()
                .create_new(true)
                .append(true)
                .open(path)?
                .sync_all()?;
            sync_directory(&directory)
        })
        .await
    }

    async fn append(&self, name: &str, bytes: Bytes) -> io::Result<()> {
        self.run(name, move |file| {
            file.write_all(&bytes)?;
            file.sync_data()
        })
        .await
    }

    async fn truncate(&self, name: &str, size: u64) -> io::Result<()> {
        self.run(name, move |file| {
            file.set_len(size)?;
            file.sync_all()
        })
        .await
    }

    async fn remove(&self, name: &str) -> io::Result<()> {
        lock(&self.open).remove(name);
        let directory = self.directory.clone();
        let path = directory.join(name);
        blocking(move || {
            std::fs::remove_file(path)?;
            sync_directory(&directory)
        })
        .await
    }
}
