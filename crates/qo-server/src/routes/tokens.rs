//! The tokens of the server. The secrets of tokens never come here: clients send their hashes.

use std::time::Duration;

use axum::extract::State;
use qo_remote::wire::{Condition, TokenBody, TokenInfo};

use crate::app::App;
use crate::author::Author;
use crate::body::{JsonBody, PathParam};
use crate::response::{ApiError, ApiResult, json, no_content};
use crate::tokens::{Scope, TokenError, TokenLimits, TokenRecord, TokenStore};

fn store(app: &App) -> Result<&TokenStore, ApiError> {
    app.guard.store().ok_or_else(|| {
        ApiError::new(
            Condition::NoTokens,
            "this server has fixed tokens or none; `qo serve` keeps them in its store",
        )
    })
}

impl From<TokenError> for ApiError {
    fn from(error: TokenError) -> Self {
        match error {
            TokenError::Store(error) => qo::EngineError::Store(error).into(),
            TokenError::NotFound { ref id } => {
                let id = id.clone();
                Self::new(Condition::TokenNotFound { id }, error.to_string())
            }
            TokenError::Unreadable(_) => Self::new(Condition::Internal, error.to_string()),
            error => Self::bad_request(error.to_string()),
        }
    }
}

fn info(record: &TokenRecord) -> TokenInfo {
    let limits = record.limits();
    TokenInfo {
        id: record.id.clone(),
        name: record.name.as_str().to_owned(),
        scopes: record.granted().iter().map(ToString::to_string).collect(),
        queues: limits.queues.into_iter().collect(),
        types: limits.types.into_iter().collect(),
        created_at: record.created_at,
        expires_at: record.expires_at,
    }
}

/// List the tokens
///
/// All tokens, without their secrets.
#[utoipa::path(
    get, path = "/v1/tokens", tag = "operate", operation_id = "tokens",
    responses((status = 200, description = "The tokens", body = Vec<TokenInfo>))
)]
pub(crate) async fn list(State(app): State<App>) -> ApiResult {
    let records = store(&app)?.list().await?;
    json(&records.iter().map(info).collect::<Vec<_>>())
}

/// Create a token
///
/// A token is `qo_{id}_{secret}`: an id of 16 hexadecimal digits, and 32 random bytes in base64url without padding. The client draws both, and
/// sends the id and the SHA-256 of the secret part as it is written in the token. Repeating the request changes nothing.
#[utoipa::path(
    put, path = "/v1/tokens/{token}", tag = "operate", operation_id = "create_token", request_body = TokenBody,
    params(("token" = String, Path, description = "The id of the token")),
    responses((status = 204, description = "The token is stored. Servers accept it within seconds"))
)]
pub(crate) async fn create(
    State(app): State<App>,
    PathParam(id): PathParam<String>,
    author: Author,
    JsonBody(body): JsonBody<TokenBody>,
) -> ApiResult {
    let store = store(&app)?;
    let scopes: Result<Vec<Scope>, _> = body.scopes.iter().map(|scope| scope.parse()).collect();
    let scopes = scopes.map_err(|error| ApiError::bad_request(format!("{error}")))?;
    let sha256 = body.sha256.parse().map_err(|_| {
        ApiError::bad_request("sha256 has 64 hexadecimal digits in lower case".to_owned())
    })?;
    let limits = TokenLimits {
        queues: body.queues.into_iter().collect(),
        types: body.types.into_iter().collect(),
    };
    let valid_for = body.valid_for_ms.map(Duration::from_millis);
    store
        .register(&id, &body.name, &scopes, limits, sha256, valid_for)
        .await?;
    app.guard.forget();
    author.log("create token", &id);
    Ok(no_content())
}

/// Revoke a token
#[utoipa::path(
    delete, path = "/v1/tokens/{token}", tag = "operate", operation_id = "revoke_token",
    params(("token" = String, Path, description = "The id of the token")),
    responses((status = 204, description = "The token is revoked. Servers reject it within seconds"))
)]
pub(crate) async fn revoke(
    State(app): State<App>,
    PathParam(id): PathParam<String>,
    author: Author,
) -> ApiResult {
    store(&app)?.revoke(&id).await?;
    app.guard.forget();
    author.log("revoke token", &id);
    Ok(no_content())
}
