//! `qo config`: the settings in effect and where each comes from.

use crate::failure::Failure;
use crate::output::style::DIM;
use crate::output::table::{Cell, Table};
use crate::session::Session;

pub(super) fn run(session: &mut Session) -> Result<(), Failure> {
    // Opening the store sends no request. Its description is safe to print; the URL may contain secrets.
    let store = session.open_store()?;
    let settings = &session.settings;
    let file = settings
        .file
        .as_ref()
        .map(|file| file.path.display().to_string());
    let profile = settings.profile.as_ref();
    if session.screen.json {
        let value = serde_json::json!({
            "store": {
                "description": store.description,
                "origin": settings.store.origin.to_string(),
                "credentials": store.credentials.to_string(),
            },
            "profile": profile.map(|profile| serde_json::json!({
                "name": profile.value,
                "origin": profile.origin.to_string(),
            })),
            "file": file,
            "encryption": settings.encryption.as_ref().map(|source| serde_json::json!({
                "source": source.value.to_string(),
                "origin": source.origin.to_string(),
            })),
        });
        return session.screen.json(&value);
    }
    let mut table = Table::new()
        .column("SETTING")
        .column("VALUE")
        .column("SOURCE");
    let mut row = |name: &str, value: &str, origin: &str| {
        table.row(vec![name.into(), value.into(), Cell::styled(origin, DIM)]);
    };
    row(
        "store",
        &store.description,
        &settings.store.origin.to_string(),
    );
    row("credentials", &store.credentials.to_string(), "");
    match profile {
        Some(profile) => row("profile", &profile.value, &profile.origin.to_string()),
        None => row("profile", "none", ""),
    }
    match &settings.encryption {
        Some(source) => row(
            "encryption",
            &source.value.to_string(),
            &source.origin.to_string(),
        ),
        None => row("encryption", "none", ""),
    }
    match file {
        Some(file) => row("file", &file, &settings.file_origin.to_string()),
        None => row("file", "no qo.toml", ""),
    }
    Ok(session.screen.table(&table)?)
}
