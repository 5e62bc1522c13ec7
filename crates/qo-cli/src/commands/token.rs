//! `qo token`: access tokens for `qo serve`.

use qo_server::tokens::{TokenError, TokenRecord};
use serde_json::{Value, json};

use super::serve::token_store;
use crate::args::{TokenArgs, TokenCommand};
use crate::failure::{Failure, FailureKind};
use crate::output::table::{Cell, Table};
use crate::output::time;
use crate::session::Session;

pub(super) async fn run(args: &TokenArgs, session: &mut Session) -> Result<(), Failure> {
    let tokens = token_store(session)?;
    match &args.command {
        TokenCommand::Create(args) => {
            let token = tokens
                .create(&args.name, &args.scope, args.valid_for)
                .await?;
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
            Cell::from(time::relative(record.created_at, now)),
            Cell::from(expires),
        ]);
    }
    session.screen.table(&table)?;
    Ok(())
}

fn scopes(record: &TokenRecord) -> Vec<&'static str> {
    record.scopes.iter().map(|scope| scope.as_str()).collect()
}

/// A token as `--json` prints it, without its secret and its hash.
fn view(record: &TokenRecord) -> Value {
    json!({
        "id": record.id,
        "name": record.name,
        "scopes": scopes(record),
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
