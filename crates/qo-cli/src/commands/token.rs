//! `qo token`: access tokens for `qo serve`.

use std::collections::BTreeSet;
use std::time::Duration;

use qo::EngineError;
use qo_core::extra::Extra;
use qo_core::{Sha256, Tag};
use qo_remote::RemoteEngine;
use qo_remote::wire::{TokenBody, TokenInfo};
use qo_server::tokens::{NewToken, Scope, TokenError, TokenLimits, TokenRecord, TokenStore};
use qo_store::StoreError;
use serde_json::{Value, json};

use super::cluster::remote;
use super::serve::token_store;
use crate::args::{TokenArgs, TokenCommand, TokenCreateArgs};
use crate::failure::{Failure, FailureKind};
use crate::output::table::{Cell, Table};
use crate::output::time;
use crate::session::Session;

pub(super) async fn run(args: &TokenArgs, session: &mut Session) -> Result<(), Failure> {
    let tokens = Tokens::open(args, session)?;
    match &args.command {
        TokenCommand::Create(args) => {
            let token = tokens.create(args, session).await?;
            if session.screen.json {
                let mut shown = view(&token.record);
                shown["token"] = json!(token.reveal());
                return session.screen.json(&shown);
            }
            session.screen.line(token.reveal())?;
            session.screen.note(
                "Store this token now; it cannot be shown again. Clients pass it in QO_TOKEN, or in the header `Authorization: Bearer ...`.",
            );
            Ok(())
        }
        TokenCommand::List => list(&tokens.list().await?, session),
        TokenCommand::Revoke(args) => {
            let record = tokens.revoke(&args.id).await?;
            if session.screen.json {
                return session.screen.json(&view(&record));
            }
            session.screen.note(format_args!(
                "Revoked {}. Servers reject it within seconds.",
                record.name.as_str()
            ));
            Ok(())
        }
    }
}

/// Where the tokens are.
enum Tokens {
    /// In a store.
    Stored(TokenStore),
    /// Behind servers.
    Remote(Box<RemoteEngine>),
}

impl Tokens {
    fn open(args: &TokenArgs, session: &mut Session) -> Result<Self, Failure> {
        let url = session.settings.store.value.as_deref();
        if url.is_some_and(qo::names_servers) {
            let remote = remote(session, args.secret_file.as_deref())?;
            return Ok(Self::Remote(Box::new(remote)));
        }
        if args.secret_file.is_some() {
            return Err(Failure::bad_input(
                "--secret-file is for clusters, and --store does not name one",
            )
            .hint("name its nodes, such as --store cluster://10.0.0.5,10.0.0.6,10.0.0.7"));
        }
        Ok(Self::Stored(token_store(session)?))
    }

    async fn create(&self, args: &TokenCreateArgs, session: &Session) -> Result<NewToken, Failure> {
        let engine = match self {
            Self::Stored(store) => {
                let created =
                    store.create_limited(&args.name, &args.scope, args.limits(), args.valid_for);
                return Ok(created.await?);
            }
            Self::Remote(engine) => engine,
        };
        create_remote(engine, args, session).await
    }

    async fn list(&self) -> Result<Vec<TokenRecord>, Failure> {
        let engine = match self {
            Self::Stored(store) => return Ok(store.list().await?),
            Self::Remote(engine) => engine,
        };
        let tokens = engine.tokens().await.map_err(qo::Error::from)?;
        tokens.into_iter().map(record).collect()
    }

    async fn revoke(&self, id: &str) -> Result<TokenRecord, Failure> {
        let engine = match self {
            Self::Stored(store) => return Ok(store.revoke(id).await?),
            Self::Remote(engine) => engine,
        };
        let known = self.list().await?.into_iter().find(|token| token.id == id);
        let Some(record) = known else {
            let id = id.chars().take(64).collect();
            return Err(TokenError::NotFound { id }.into());
        };
        let revoked = engine.revoke_token(&record.id).await;
        match revoked {
            // Another request was faster, or an earlier attempt of this one.
            Ok(()) | Err(EngineError::Store(StoreError::NotFound { .. })) => Ok(record),
            Err(error) => Err(qo::Error::from(error).into()),
        }
    }
}

/// Draws a token and stores its hash behind servers.
pub(super) async fn create_remote(
    engine: &RemoteEngine,
    args: &TokenCreateArgs,
    session: &Session,
) -> Result<NewToken, Failure> {
    let now = session.runtime.now();
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let name = Tag::new(&args.name).map_err(TokenError::from)?;
    let expires_at = args.valid_for.map(|time| now.plus_millis(millis(time)));
    let scopes = args.scope.iter().copied();
    let token = NewToken::draw(session.runtime.as_ref(), name, scopes, now, expires_at)
        .limited(args.limits());
    let body = TokenBody {
        name: args.name.clone(),
        scopes: scopes_of(&token.record),
        queues: args.queue.clone(),
        types: args.task_type.clone(),
        sha256: token.record.sha256.to_string(),
        valid_for_ms: args.valid_for.map(millis),
    };
    let created = engine.create_token(&token.record.id, &body).await;
    created.map_err(qo::Error::from)?;
    Ok(token)
}

/// The record of a token whose hash a server does not show.
fn record(info: TokenInfo) -> Result<TokenRecord, Failure> {
    let unreadable = |error: &dyn std::fmt::Display| {
        Failure::new(
            FailureKind::Unavailable,
            format!("the server lists a token that cannot be read: {error}"),
        )
    };
    let scopes: Result<BTreeSet<Scope>, _> =
        info.scopes.iter().map(|scope| scope.parse()).collect();
    let mut record = TokenRecord {
        id: info.id,
        name: Tag::new(&info.name).map_err(|error| unreadable(&error))?,
        scopes: scopes.map_err(|error| unreadable(&error))?,
        limited: None,
        sha256: Sha256::from_bytes([0; 32]),
        created_at: info.created_at,
        expires_at: info.expires_at,
        extra: Extra::default(),
    };
    record.limit(TokenLimits {
        queues: info.queues.into_iter().collect(),
        types: info.types.into_iter().collect(),
    });
    Ok(record)
}

fn list(records: &[TokenRecord], session: &mut Session) -> Result<(), Failure> {
    if session.screen.json {
        for record in records {
            session.screen.json(&view(record))?;
        }
        return Ok(());
    }
    if records.is_empty() {
        session.screen.note(
            "There are no tokens. Create one with `qo token create --name NAME --scope SCOPE`.",
        );
        return Ok(());
    }
    let now = session.runtime.now();
    let mut table = Table::new()
        .column("ID")
        .column("NAME")
        .column("SCOPES")
        .column("LIMITED TO")
        .column("CREATED")
        .column("EXPIRES");
    for record in records {
        let expires = record
            .expires_at
            .map_or_else(|| "never".to_owned(), |at| time::relative(at, now));
        table.row(vec![
            Cell::from(record.id.clone()),
            Cell::from(record.name.as_str().to_owned()),
            Cell::from(scopes(record).join(",")),
            Cell::from(limited_to(record)),
            Cell::from(time::relative(record.created_at, now)),
            Cell::from(expires),
        ]);
    }
    session.screen.table(&table)?;
    Ok(())
}

fn scopes_of(record: &TokenRecord) -> Vec<String> {
    record.granted().iter().map(ToString::to_string).collect()
}

fn scopes(record: &TokenRecord) -> Vec<&'static str> {
    record
        .granted()
        .iter()
        .map(|scope| scope.as_str())
        .collect()
}

/// The queues and types of a token; empty if it is for all.
fn limited_to(record: &TokenRecord) -> String {
    let limits = record.limits();
    let queues = limits.queues.iter().map(ToString::to_string);
    let types = limits.types.iter().map(|name| format!("type {name}"));
    queues.chain(types).collect::<Vec<_>>().join(", ")
}

/// A token as `--json` prints it, without its secret and its hash.
fn view(record: &TokenRecord) -> Value {
    let limits = record.limits();
    json!({
        "id": record.id,
        "name": record.name,
        "scopes": scopes(record),
        "queues": limits.queues,
        "types": limits.types,
        "created_at": record.created_at,
        "expires_at": record.expires_at,
    })
}

impl From<TokenError> for Failure {
    fn from(error: TokenError) -> Self {
        let kind = match &error {
            TokenError::NotFound { .. } => FailureKind::NotFound,
            TokenError::Store(_) => FailureKind::Unavailable,
            _ => FailureKind::BadInput,
        };
        Self::new(kind, error.to_string())
    }
}
