//! WASI jobs: uploading a program and its input.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use futures_util::stream::{StreamExt as _, unfold};
use qo::encryption::EncryptionError;
use qo::{Json, Queue};
use qo_blob::job::JobInput;
use qo_blob::{BlobAddress, BlobError, BlobStore, BlobStream};
use tokio::sync::mpsc;

use crate::failure::Failure;
use crate::session::Session;

/// How a WebAssembly binary starts.
const MAGIC: &[u8] = b"\0asm";

/// Size and number of the chunks that wait for an upload.
const CHUNK_BYTES: usize = 64 * 1024;
const CHUNKS: usize = 4;

/// A job as the command line describes it.
#[derive(Debug)]
pub(super) struct JobSource<'a> {
    /// A file, or the address of a blob.
    pub(super) program: &'a Path,
    /// A file, or `-` for standard input.
    pub(super) stdin: Option<&'a Path>,
    /// Arguments of the program.
    pub(super) arguments: &'a [String],
}

impl JobSource<'_> {
    /// Uploads the program and its input, and returns the input of the task.
    pub(super) async fn upload(
        &self,
        queue: &Queue,
        session: &mut Session,
    ) -> Result<Json, Failure> {
        if !queue.encryption_keys().is_empty() {
            // Refused by the submit as well, but only after the upload.
            return Err(qo::Error::from(EncryptionError::RefersToBlobs).into());
        }
        let blobs = queue.blobs()?;
        let mut job = JobInput::new(self.store_program(&*blobs, session).await?);
        job.args = self.arguments.to_vec();
        if let Some(path) = self.stdin {
            job.input_addr = store_input(&*blobs, path, session).await?;
        }
        job.to_json()
            .map_err(|error| Failure::bad_input(error.to_string()))
    }

    async fn store_program(
        &self,
        blobs: &dyn BlobStore,
        session: &Session,
    ) -> Result<BlobAddress, Failure> {
        let path = session.environment.directory.join(self.program);
        let address = self.program.to_str().and_then(|text| text.parse().ok());
        if let Some(address) = address
            && !path.exists()
        {
            // Keeps it from being collected before the task refers to it.
            let stored = blobs.touch(address).await.map_err(qo::Error::from)?;
            return Ok(stored.address);
        }
        let mut file = super::submit::open(&path)?;
        let mut start = [0; MAGIC.len()];
        let read = file.read_exact(&mut start);
        if read.is_err() || start != MAGIC {
            return Err(Failure::bad_input(format!(
                "{} is not a WebAssembly binary",
                path.display()
            ))
            .hint("build the program for the target wasm32-wasip1 or wasm32-wasip2"));
        }
        let body = stream(io::Cursor::new(start).chain(file), path);
        let stored = blobs.put(body, None).await.map_err(qo::Error::from)?;
        Ok(stored.address)
    }
}

/// Stores the input of a program; an empty one needs no blob.
async fn store_input(
    blobs: &dyn BlobStore,
    path: &Path,
    session: &mut Session,
) -> Result<Option<BlobAddress>, Failure> {
    let mut body = if path == Path::new("-") {
        stream(session.screen.take_stdin(), PathBuf::from("standard input"))
    } else {
        let path = session.environment.directory.join(path);
        stream(super::submit::open(&path)?, path)
    };
    let Some(first) = body.next().await else {
        return Ok(None);
    };
    let body = futures_util::stream::once(async { first }).chain(body);
    let stored = blobs.put(body.boxed(), None).await;
    Ok(Some(stored.map_err(qo::Error::from)?.address))
}

/// Reads a file on a thread of its own.
fn stream(mut source: impl Read + Send + 'static, path: PathBuf) -> BlobStream {
    let (chunks, received) = mpsc::channel(CHUNKS);
    tokio::task::spawn_blocking(move || {
        loop {
            let mut chunk = vec![0; CHUNK_BYTES];
            let item = match source.read(&mut chunk) {
                Ok(0) => Ok(None),
                Ok(length) => {
                    chunk.truncate(length);
                    Ok(Some(Bytes::from(chunk)))
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => Err(BlobError::Upload {
                    detail: format!("cannot read {}: {error}", path.display()),
                }),
            };
            let is_last = !matches!(item, Ok(Some(_)));
            // The receiver is gone if the upload failed.
            if chunks.blocking_send(item).is_err() || is_last {
                return;
            }
        }
    });
    unfold(Some(received), |received| async move {
        let mut received = received?;
        match received.recv().await {
            Some(Ok(Some(chunk))) => Some((Ok(chunk), Some(received))),
            Some(Ok(None)) => None,
            Some(Err(error)) => Some((Err(error), None)),
            None => {
                let detail = "reading it was stopped".to_owned();
                Some((Err(BlobError::Upload { detail }), None))
            }
        }
    })
    .boxed()
}
