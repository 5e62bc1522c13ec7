//! `qo webhook`: URLs that are notified when tasks end.

use std::path::Path;

use qo::webhook::{Webhook, WebhookPut, WebhookSecret};
use qo::{Queue, Timestamp, WebhookInfo};
use serde_json::json;

use crate::args::{WebhookAddArgs, WebhookArgs, WebhookCommand};
use crate::failure::Failure;
use crate::output::table::{Cell, Table};
use crate::output::time;
use crate::session::Session;

/// Maximum size of a file with a secret.
const SECRET_FILE_MAX_BYTES: u64 = 4 * 1024;

pub(super) async fn run(args: &WebhookArgs, session: &mut Session) -> Result<(), Failure> {
    // Everything that can be wrong is found before the store is opened.
    let webhook = match &args.command {
        WebhookCommand::Add(args) => Some(webhook_of(args, session)?),
        _ => None,
    };
    let queue = session.connect().await?;
    let result = run_on(&queue, &args.command, webhook, session).await;
    queue.close().await;
    result
}

async fn run_on(
    queue: &Queue,
    command: &WebhookCommand,
    webhook: Option<Webhook>,
    session: &mut Session,
) -> Result<(), Failure> {
    let webhooks = queue.webhooks();
    match (command, webhook) {
        (WebhookCommand::Add(args), Some(webhook)) => {
            added(&webhooks.put(&args.name, webhook).await?, session)
        }
        // Only `add` has a definition.
        (WebhookCommand::Add(_), None) => Ok(()),
        (WebhookCommand::List, _) => list(&webhooks.list().await?, session),
        (WebhookCommand::Show(args), _) => {
            show(&webhooks.get(&args.name).await?, queue.now(), session)
        }
        (WebhookCommand::Remove(args), _) => {
            webhooks.remove(&args.name).await?;
            if session.screen.json {
                return session.screen.json(&json!({ "removed": args.name }));
            }
            session.screen.note(format_args!("Removed {}.", args.name));
            Ok(())
        }
        (WebhookCommand::Test(args), _) => {
            let id = webhooks.test(&args.name).await?;
            if session.screen.json {
                return session.screen.json(&json!({ "delivery": id }));
            }
            session.screen.line(id.to_string())?;
            session.screen.note(format_args!(
                "Submitted a test notification. `qo wait {id}` waits until it is delivered."
            ));
            Ok(())
        }
    }
}

fn webhook_of(args: &WebhookAddArgs, session: &Session) -> Result<Webhook, Failure> {
    let secret = args.secret_file.as_ref();
    let secret = secret.map(|path| read_secret(&session.environment.directory.join(path)));
    let webhook = Webhook {
        events: args.on.clone(),
        queues: args.queue.clone(),
        task_types: args.task_type.clone(),
        secret: secret.transpose()?,
        ..Webhook::new(&args.url)
    };
    webhook.validate().map_err(qo::Error::from)?;
    Ok(webhook)
}

fn read_secret(path: &Path) -> Result<WebhookSecret, Failure> {
    let failed = |why: String| Failure::bad_input(format!("cannot read {}: {why}", path.display()));
    let size = std::fs::metadata(path).map_err(|error| failed(error.to_string()))?;
    if size.len() > SECRET_FILE_MAX_BYTES {
        return Err(failed("it is too large for a secret".to_owned()));
    }
    let text = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
    Ok(WebhookSecret::new(text.trim()).map_err(qo::Error::from)?)
}

fn added(put: &WebhookPut, session: &mut Session) -> Result<(), Failure> {
    if session.screen.json {
        return session.screen.json(put);
    }
    let name = &put.info.name;
    match &put.secret {
        Some(secret) => {
            session.screen.note(format_args!(
                "Set {name}. The receiver verifies notifications with this secret, which is not shown again:"
            ));
            session.screen.line(secret.as_str())?;
        }
        None => session
            .screen
            .note(format_args!("Set {name}. It keeps its secret.")),
    }
    session.screen.note(
        "`qo serve --webhooks` or `qo worker --webhooks` delivers the notifications; `qo dev` does so, too.",
    );
    Ok(())
}

/// The ends that a webhook is about, for people.
fn events(webhook: &Webhook) -> String {
    let events: Vec<_> = webhook.events.iter().map(|event| event.as_str()).collect();
    events.join(", ")
}

/// The tasks that it is about, for people.
fn applies_to(webhook: &Webhook) -> String {
    let queues = webhook.queues.iter().map(|queue| format!("queue {queue}"));
    let types = webhook.task_types.iter().map(|name| format!("type {name}"));
    let parts: Vec<String> = queues.chain(types).collect();
    if parts.is_empty() {
        return "all tasks".to_owned();
    }
    parts.join(", ")
}

fn list(webhooks: &[WebhookInfo], session: &mut Session) -> Result<(), Failure> {
    if session.screen.json {
        for info in webhooks {
            session.screen.json(info)?;
        }
        return Ok(());
    }
    if webhooks.is_empty() {
        session
            .screen
            .note("There are no webhooks. Add one with `qo webhook add NAME URL`.");
        return Ok(());
    }
    let mut table = Table::new()
        .column("NAME")
        .column("ON")
        .column("OF")
        .column("URL");
    for info in webhooks {
        table.row(vec![
            Cell::from(info.name.to_string()),
            Cell::from(events(&info.webhook)),
            Cell::from(applies_to(&info.webhook)),
            Cell::from(info.webhook.url.clone()),
        ]);
    }
    session.screen.table(&table)?;
    Ok(())
}

fn show(info: &WebhookInfo, now: Timestamp, session: &mut Session) -> Result<(), Failure> {
    if session.screen.json {
        return session.screen.json(info);
    }
    let screen = &mut session.screen;
    let mut line = |name: &str, value: String| screen.line(format_args!("{name:<10} {value}"));
    line("Name", info.name.to_string())?;
    line("URL", info.webhook.url.clone())?;
    line("On", events(&info.webhook))?;
    line("Of", applies_to(&info.webhook))?;
    line("Changed", time::both(info.updated_at, now))?;
    Ok(())
}
