//! `qo key`: encryption keys.

use std::io::Write as _;
use std::path::Path;

use qo::encryption::{Key, KeyId};
use serde_json::json;

use crate::args::{KeyArgs, KeyCommand, KeyGenerateArgs};
use crate::failure::{Failure, FailureKind};
use crate::keys;
use crate::output::style::DIM;
use crate::output::table::{Cell, Table};
use crate::session::Session;

pub(super) async fn run(args: &KeyArgs, session: &mut Session) -> Result<(), Failure> {
    match &args.command {
        KeyCommand::Generate(args) => generate(args, session),
        KeyCommand::List => list(session).await,
    }
}

fn generate(args: &KeyGenerateArgs, session: &mut Session) -> Result<(), Failure> {
    let id = match &args.id {
        Some(id) => id.clone(),
        None => today(session)?,
    };
    let key = Key::generate(id).map_err(qo::Error::from)?;
    let Some(path) = &args.out else {
        if session.screen.json {
            let shown = json!({ "id": key.id().as_str(), "key": key.reveal() });
            return session.screen.json(&shown);
        }
        return Ok(session.screen.line(key.reveal())?);
    };
    let path = session.environment.directory.join(path);
    write(&path, &key).map_err(|error| {
        Failure::bad_input(format!("cannot create {}: {error}", path.display()))
            .hint("an existing file is never overwritten, because its keys may be in use; append a key with `qo key generate >> FILE`")
    })?;
    if session.screen.json {
        let shown = json!({ "id": key.id().as_str(), "file": path.display().to_string() });
        return session.screen.json(&shown);
    }
    session.screen.note(format_args!(
        "Wrote key {} to {}. Keep a copy: without it, nobody can read what it encrypted.",
        key.id(),
        path.display()
    ));
    Ok(())
}

/// The date as the name of a key.
fn today(session: &Session) -> Result<KeyId, Failure> {
    let now = session.runtime.now().to_string();
    let date = now.split('T').next().unwrap_or_default();
    Ok(KeyId::new(date).map_err(qo::Error::from)?)
}

/// Writes a key to a new file that only its owner can read.
fn write(path: &Path, key: &Key) -> std::io::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(path)?;
    writeln!(
        file,
        "# Encryption keys of qo: the first one encrypts, all of them decrypt.\n{}",
        key.reveal()
    )?;
    file.sync_all()
}

async fn list(session: &mut Session) -> Result<(), Failure> {
    let Some(source) = session.settings.encryption.clone() else {
        return Err(
            Failure::new(FailureKind::NotFound, "no encryption keys are configured").hint(
                "set QO_ENCRYPTION_KEY_FILE or --encryption-key-file; `qo key generate` makes a key",
            ),
        );
    };
    let keyring = keys::load(&source, session.runtime.as_ref()).await?;
    let origin = source.origin.to_string();
    let uses = std::iter::once("encrypts and decrypts").chain(std::iter::repeat("decrypts"));
    if session.screen.json {
        for (position, id) in keyring.ids().enumerate() {
            let shown = json!({ "id": id.as_str(), "encrypts": position == 0, "origin": origin });
            session.screen.json(&shown)?;
        }
        return Ok(());
    }
    let mut table = Table::new().column("ID").column("USE").column("SOURCE");
    for (id, used) in keyring.ids().zip(uses) {
        table.row(vec![
            Cell::new(id.as_str()),
            Cell::new(used),
            Cell::styled(&origin, DIM),
        ]);
    }
    Ok(session.screen.table(&table)?)
}
