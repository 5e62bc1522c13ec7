//! `qo blob`: bytes that are stored by content.

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use futures_util::stream::{StreamExt, TryStreamExt, try_unfold};
use qo::blob::GcOptions;
use qo::{BlobError, BlobStream, Error, ReadBlob};
use serde_json::json;

use crate::args::{
    BlobArgs, BlobCommand, BlobDeleteArgs, BlobGcArgs, BlobGetArgs, BlobListArgs, BlobPutArgs,
};
use crate::failure::{Failure, FailureKind};
use crate::output::table::{Cell, Table};
use crate::output::time;
use crate::session::Session;

/// The size of the pieces in which a file is read.
const CHUNK_BYTES: usize = 256 * 1024;
/// The blobs in one page.
const PAGE: usize = 1_000;

pub(super) async fn run(args: &BlobArgs, session: &mut Session) -> Result<(), Failure> {
    match &args.command {
        BlobCommand::Put(args) => put(args, session).await,
        BlobCommand::Get(args) => get(args, session).await,
        BlobCommand::List(args) => list(args, session).await,
        BlobCommand::Delete(args) => delete(args, session).await,
        BlobCommand::Gc(args) => gc(args, session).await,
    }
}

async fn put(args: &BlobPutArgs, session: &mut Session) -> Result<(), Failure> {
    let source: Box<dyn Read + Send> = if args.file == Path::new("-") {
        Box::new(session.screen.take_stdin())
    } else {
        let failed = |error: std::io::Error| cannot("read", &args.file, &error);
        let file = File::open(&args.file).map_err(failed)?;
        if file.metadata().map_err(failed)?.is_dir() {
            return Err(Failure::bad_input(format!(
                "{} is a directory; name a file",
                args.file.display()
            )));
        }
        Box::new(file)
    };
    let queue = session.connect().await?;
    let blobs = queue.blobs()?;
    let put = blobs.put(stream(source), args.expect).await;
    let put = put.map_err(Error::from)?;
    if session.screen.json {
        return session.screen.json(&put);
    }
    session.screen.line(put.address)?;
    session.screen.note(format_args!(
        "{} {} bytes.",
        if put.created {
            "Stored"
        } else {
            "Already stored:"
        },
        put.size
    ));
    Ok(())
}

fn cannot(what: &str, path: &Path, error: &std::io::Error) -> Failure {
    let message = format!("cannot {what} {}: {error}", path.display());
    Failure::new(FailureKind::BadInput, message)
}

/// A file as a stream.
fn stream(source: Box<dyn Read + Send>) -> BlobStream {
    try_unfold(source, |mut source| async move {
        let read = tokio::task::spawn_blocking(move || {
            let mut chunk = vec![0; CHUNK_BYTES];
            let length = source.read(&mut chunk)?;
            chunk.truncate(length);
            Ok::<_, std::io::Error>((chunk, source))
        });
        let failed = |detail: String| BlobError::Upload { detail };
        let read = read.await.map_err(|error| failed(error.to_string()))?;
        let (chunk, source) = read.map_err(|error| failed(error.to_string()))?;
        Ok((!chunk.is_empty()).then(|| (chunk.into(), source)))
    })
    .boxed()
}

async fn get(args: &BlobGetArgs, session: &mut Session) -> Result<(), Failure> {
    if session.screen.json && args.output.is_none() {
        return Err(Failure::bad_input(
            "--json would mix with the bytes on standard output; write them to a file with --output",
        ));
    }
    let queue = session.connect().await?;
    let blob = queue.blobs()?.get(args.address, None).await;
    let blob = blob.map_err(Error::from)?;
    let size = blob.size;
    let Some(path) = &args.output else {
        let mut body = blob.body;
        while let Some(chunk) = body.try_next().await.map_err(Error::from)? {
            session.screen.write_bytes(&chunk)?;
        }
        return Ok(session.screen.flush()?);
    };
    save(blob, path).await?;
    if session.screen.json {
        return session
            .screen
            .json(&json!({ "address": args.address, "size": size, "file": path }));
    }
    session
        .screen
        .note(format_args!("Wrote {size} bytes to {}.", path.display()));
    Ok(())
}

/// Writes a blob to a file, which appears only if the blob is whole.
async fn save(blob: ReadBlob, path: &Path) -> Result<(), Failure> {
    let failed = |error: std::io::Error| cannot("write", path, &error);
    let Some(name) = path.file_name() else {
        return Err(Failure::bad_input(format!(
            "{} names no file",
            path.display()
        )));
    };
    let mut partial_name = name.to_owned();
    partial_name.push(format!(".partial-{}", std::process::id()));
    let partial: PathBuf = path.with_file_name(partial_name);
    let written = async {
        let mut file = File::create(&partial).map_err(failed)?;
        let mut body = blob.body;
        while let Some(chunk) = body.try_next().await.map_err(Error::from)? {
            file.write_all(&chunk).map_err(failed)?;
        }
        file.sync_all().map_err(failed)?;
        std::fs::rename(&partial, path).map_err(failed)
    };
    let written: Result<(), Failure> = written.await;
    if written.is_err() {
        let _ = std::fs::remove_file(&partial);
    }
    written
}

async fn list(args: &BlobListArgs, session: &mut Session) -> Result<(), Failure> {
    let queue = session.connect().await?;
    let blobs = queue.blobs()?;
    let (mut after, mut left) = (args.after, args.limit);
    let mut table = Table::new()
        .column("ADDRESS")
        .column("BYTES")
        .column("STORED");
    let now = queue.now();
    loop {
        let limit = if args.limit == 0 {
            PAGE
        } else {
            left.min(PAGE)
        };
        let page = blobs.list(after, limit).await.map_err(Error::from)?;
        left = left.saturating_sub(page.blobs.len());
        for blob in page.blobs {
            if session.screen.json {
                session.screen.json(&blob)?;
                continue;
            }
            table.row(vec![
                Cell::from(blob.address.to_string()),
                Cell::from(blob.size.to_string()),
                Cell::from(time::relative(blob.stored_at, now)),
            ]);
        }
        after = page.next;
        if after.is_none() || (args.limit > 0 && left == 0) {
            break;
        }
    }
    if session.screen.json {
        return Ok(());
    }
    session.screen.table(&table)?;
    if let Some(after) = after {
        session.screen.note(format_args!(
            "There are more: --after {after}, or --limit 0."
        ));
    }
    Ok(())
}

async fn delete(args: &BlobDeleteArgs, session: &mut Session) -> Result<(), Failure> {
    let queue = session.connect().await?;
    let address = args.address;
    let deleted = queue.blobs()?.delete(address).await;
    if !deleted.map_err(Error::from)? {
        return Err(Error::from(BlobError::NotFound { address }).into());
    }
    if session.screen.json {
        return session
            .screen
            .json(&json!({ "address": address, "deleted": true }));
    }
    session.screen.note(format_args!("Deleted {address}."));
    Ok(())
}

async fn gc(args: &BlobGcArgs, session: &mut Session) -> Result<(), Failure> {
    let queue = session.connect().await?;
    let grace_ms = u64::try_from(args.grace.as_millis()).unwrap_or(u64::MAX);
    let report = queue
        .gc_blobs(&GcOptions::new(grace_ms, args.dry_run))
        .await?;
    if session.screen.json {
        return session.screen.json(&report);
    }
    session.screen.line(format_args!(
        "{} {} of {} blobs, {} bytes. Tasks refer to {}, and {} are recent.",
        if args.dry_run {
            "Would delete"
        } else {
            "Deleted"
        },
        report.collected,
        report.blobs,
        report.collected_bytes,
        report.referenced,
        report.recent,
    ))?;
    if report.missing > 0 {
        session.screen.warn(format_args!(
            "the bytes of {} blobs are gone although qo did not delete them",
            report.missing
        ));
    }
    if report.unreadable > 0 {
        session.screen.warn(format_args!(
            "the records of {} blobs cannot be read; the log names them",
            report.unreadable
        ));
    }
    Ok(())
}
