//! `qo cluster`: the nodes of a cluster, through the HTTP API of any of them.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use qo_core::Tag;
use qo_remote::wire::cluster::MemberBody;
use qo_remote::{RemoteConfig, RemoteEngine, Token};
use qo_server::tokens::NewToken;
use serde_json::Value;

use crate::args::{ClusterArgs, ClusterCommand};
use crate::failure::{Failure, FailureKind};
use crate::output::table::{Cell, Table};
use crate::session::Session;

pub(super) async fn run(args: &ClusterArgs, session: &mut Session) -> Result<(), Failure> {
    let engine = remote(session, None)?;
    // The leader knows more than the others, and a request that only it serves leads there. Without a leader, any node shows its state.
    let leads = engine.check().await;
    match &args.command {
        ClusterCommand::Status => {
            let status = engine.cluster().await.map_err(qo::Error::from)?;
            if let Err(error) = leads {
                session
                    .screen
                    .warn(format_args!("no leader responds: {error}"));
            }
            show_status(&status, session)
        }
        ClusterCommand::Log(args) => {
            let limit = args.limit as usize;
            let lines = engine.cluster_log(args.group, args.from, limit).await;
            show_log(&lines.map_err(qo::Error::from)?, session)
        }
        ClusterCommand::Add(args) => {
            let member = MemberBody {
                address: args.member.address.clone(),
                url: args.member.url.clone(),
            };
            let node = args.member.node;
            let added = engine.cluster_add(node, &member).await;
            added.map_err(qo::Error::from)?;
            done(
                session,
                "added",
                Some(node),
                "The node has caught up. Let it vote with `qo cluster promote`.",
            )
        }
        ClusterCommand::Promote(args) => {
            let promoted = engine.cluster_promote(args.node).await;
            promoted.map_err(qo::Error::from)?;
            done(session, "promoted", Some(args.node), "The node votes now.")
        }
        ClusterCommand::Remove(args) => {
            let removed = engine.cluster_remove(args.node).await;
            removed.map_err(qo::Error::from)?;
            done(
                session,
                "removed",
                Some(args.node),
                "The node is no longer a member. Stop it, and do not start it again with its data.",
            )
        }
        ClusterCommand::Snapshot => {
            let snapshot = engine.cluster_snapshot().await;
            snapshot.map_err(qo::Error::from)?;
            done(session, "snapshot", None, "The snapshot is being made.")
        }
    }
}

/// The variable with the secret that all nodes share.
pub(super) const SECRET_VARIABLE: &str = "QO_CLUSTER_SECRET";
/// Maximum size of a file with a secret.
const SECRET_MAX_BYTES: u64 = 4_096;

/// The secret of a cluster, without the line break at its end: from a file, or else from the variable.
pub(super) fn cluster_secret(
    file: Option<&Path>,
    session: &Session,
) -> Result<Option<Vec<u8>>, Failure> {
    let text = match file {
        Some(path) => {
            let path = session.environment.directory.join(path);
            let failed = |why: String| {
                Failure::bad_input(format!(
                    "cannot read the secret in {}: {why}",
                    path.display()
                ))
            };
            let size = fs::metadata(&path).map_err(|error| failed(error.to_string()))?;
            if size.len() > SECRET_MAX_BYTES {
                return Err(failed(format!("it has more than {SECRET_MAX_BYTES} bytes")));
            }
            fs::read(&path).map_err(|error| failed(error.to_string()))?
        }
        None => match session.environment.var(SECRET_VARIABLE) {
            Some(text) => text.as_bytes().to_vec(),
            None => return Ok(None),
        },
    };
    Ok(Some(text.trim_ascii_end().to_vec()))
}

/// The token that follows from the secret of a cluster. Every node of the cluster accepts it.
pub(super) fn secret_token(secret: &[u8]) -> Result<NewToken, Failure> {
    let name = Tag::new("cluster-secret")
        .map_err(|error| Failure::bad_input(format!("the name of a token: {error}")))?;
    Ok(NewToken::of_secret(name, secret))
}

/// The token for operators: the one that follows from the secret in `--secret-file`, else `QO_TOKEN`, else the one that follows from the
/// variable with the secret.
fn operator_token(secret_file: Option<&Path>, session: &Session) -> Result<Option<Token>, Failure> {
    if secret_file.is_none()
        && let Some(token) = session.environment.var("QO_TOKEN")
    {
        return Ok(Some(Token::new(token)));
    }
    let Some(secret) = cluster_secret(secret_file, session)? else {
        return Ok(None);
    };
    Ok(Some(Token::new(secret_token(&secret)?.reveal())))
}

/// The servers that `--store` names.
pub(super) fn remote(
    session: &Session,
    secret_file: Option<&Path>,
) -> Result<RemoteEngine, Failure> {
    let url = session.settings.store.value.as_deref().unwrap_or_default();
    if !qo::names_servers(url) {
        return Err(Failure::bad_input("--store does not name a cluster")
            .hint("name its nodes, such as --store cluster://10.0.0.5,10.0.0.6,10.0.0.7"));
    }
    let invalid = |error: &dyn std::fmt::Display| Failure::bad_input(error.to_string());
    let mut config = RemoteConfig::parse(url).map_err(|error| invalid(&error))?;
    config.token = operator_token(secret_file, session)?;
    if let Some(path) = session.environment.var("QO_CA_FILE") {
        let read = fs::read(path)
            .map_err(|error| Failure::bad_input(format!("cannot read QO_CA_FILE {path}: {error}")));
        config.ca_pem = Some(read?);
    }
    // A cluster without a leader is worth looking at, too.
    config.retry_for = std::time::Duration::from_secs(5);
    RemoteEngine::new(config, Arc::clone(&session.runtime)).map_err(|error| invalid(&error))
}

fn done(session: &mut Session, event: &str, node: Option<u64>, note: &str) -> Result<(), Failure> {
    if session.screen.json {
        return session
            .screen
            .json(&serde_json::json!({ "event": event, "node": node }));
    }
    session.screen.note(note);
    Ok(())
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn show_status(status: &Value, session: &mut Session) -> Result<(), Failure> {
    if session.screen.json {
        return session.screen.json(status);
    }
    let summary = format!(
        "Cluster {}: term {}, leader {}. Seen by node {}, a {}: log {} to {} ({} bytes), applied {}, last sync {} ms.",
        text(&status["cluster"]),
        text(&status["term"]),
        text(&status["leader"]),
        text(&status["node"]),
        text(&status["state"]),
        text(&status["log_first"]),
        text(&status["log_last"]),
        text(&status["log_bytes"]),
        text(&status["applied"]),
        text(&status["sync_ms"]),
    );
    session.screen.line(summary)?;
    let mut table = Table::new()
        .column("NODE")
        .column("ROLE")
        .column("LAG")
        .column("ADDRESS")
        .column("URL");
    for member in status["members"].as_array().into_iter().flatten() {
        let role = match (member["node"] == status["leader"], &member["voter"]) {
            (true, _) => "leader",
            (false, Value::Bool(true)) => "voter",
            (false, _) => "learner",
        };
        table.row(vec![
            Cell::from(text(&member["node"])),
            Cell::from(role.to_owned()),
            Cell::from(text(&member["lag"])),
            Cell::from(text(&member["address"])),
            Cell::from(text(&member["url"])),
        ]);
    }
    session.screen.table(&table)?;
    show_groups(status, session)?;
    if let Some(failure) = status["failure"].as_str() {
        return Err(Failure::new(
            FailureKind::Unavailable,
            format!("the node has stopped: {failure}"),
        ));
    }
    Ok(())
}

/// The groups, if there are several.
fn show_groups(status: &Value, session: &mut Session) -> Result<(), Failure> {
    let Some(groups) = status["groups"].as_array() else {
        return Ok(());
    };
    let mut table = Table::new()
        .column("GROUP")
        .column("LEADER")
        .column("TERM")
        .column("LAG")
        .column("LOG")
        .column("BYTES")
        .column("APPLIED");
    for group in groups {
        let entries = format!(
            "{} to {}",
            text(&group["log_first"]),
            text(&group["log_last"])
        );
        table.row(vec![
            Cell::from(text(&group["group"])),
            Cell::from(text(&group["leader"])),
            Cell::from(text(&group["term"])),
            Cell::from(text(&group["lag"])),
            Cell::from(entries),
            Cell::from(text(&group["log_bytes"])),
            Cell::from(text(&group["applied"])),
        ]);
    }
    Ok(session.screen.table(&table)?)
}

fn show_log(lines: &[Value], session: &mut Session) -> Result<(), Failure> {
    for line in lines {
        if session.screen.json {
            session.screen.json(line)?;
            continue;
        }
        let commands = line["commands"]
            .as_array()
            .map_or_else(String::new, |commands| {
                let names = commands.iter().map(|command| {
                    let fields = ["name", "task", "queue", "attempt", "status", "worker"];
                    let known = fields.iter().filter(|field| !command[**field].is_null());
                    known
                        .map(|field| text(&command[*field]))
                        .collect::<Vec<_>>()
                        .join(" ")
                });
                names.collect::<Vec<_>>().join("; ")
            });
        session.screen.line(format_args!(
            "{} {} {} {}",
            text(&line["index"]),
            text(&line["term"]),
            text(&line["kind"]),
            commands
        ))?;
    }
    Ok(())
}
