//! Who requests an operation, for the history of the task and the log.
//!
//! A token's name is proven. The name in the header `Qo-Actor` is what the client says: the command sends its user and machine.

use axum::extract::FromRequestParts;
use http::HeaderMap;
use http::request::Parts;
use qo_core::Actor;
use qo_remote::wire::ACTOR_HEADER;

use crate::tokens::Caller;

/// The name of a client that does not say who it is, on a server without tokens.
const UNNAMED: &str = "http";

/// The author of a request.
#[derive(Debug, Clone)]
pub(crate) struct Author(pub(crate) Option<Actor>);

impl Author {
    fn of(caller: Option<&Caller>, headers: &HeaderMap) -> Self {
        let stated = headers.get(ACTOR_HEADER).map(http::HeaderValue::as_bytes);
        let stated = stated.and_then(|bytes| std::str::from_utf8(bytes).ok());
        let stated = stated.and_then(Actor::from_text);
        let token = caller.map_or("", |caller| caller.name.as_str());
        let text = match (&stated, token) {
            (None, "") => UNNAMED.to_owned(),
            (Some(stated), "") => stated.to_string(),
            (None, token) => format!("token {token}"),
            // The proven part comes first, so that a long name does not cut it off.
            (Some(stated), token) => format!("token {token}: {stated}"),
        };
        Self(Actor::from_text(&text))
    }

    /// Writes to the log what the author has done.
    pub(crate) fn log(&self, operation: &str, target: &dyn std::fmt::Display) {
        let actor = self.0.as_ref().map_or(UNNAMED, Actor::as_str);
        tracing::info!(actor, operation, %target, "operator action");
    }
}

impl<S: Sync> FromRequestParts<S> for Author {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Self::Rejection> {
        Ok(Self::of(parts.extensions.get::<Caller>(), &parts.headers))
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn a_token_is_named_before_what_the_client_says() {
        let caller = Caller {
            token: "0123456789abcdef".to_owned(),
            name: "ci".to_owned(),
            scopes: std::collections::BTreeSet::new(),
            limits: crate::tokens::TokenLimits::default(),
        };
        let mut headers = HeaderMap::new();
        let name = |caller, headers: &HeaderMap| Author::of(caller, headers).0.unwrap().to_string();
        assert_eq!(name(None, &headers), "http");
        assert_eq!(name(Some(&caller), &headers), "token ci");
        headers.insert(ACTOR_HEADER, HeaderValue::from_static("ada@laptop"));
        assert_eq!(name(None, &headers), "ada@laptop");
        assert_eq!(name(Some(&caller), &headers), "token ci: ada@laptop");
        let long = HeaderValue::from_str(&"x".repeat(4_000)).unwrap();
        headers.insert(ACTOR_HEADER, long);
        assert!(name(Some(&caller), &headers).starts_with("token ci: xxx"));
        headers.insert(ACTOR_HEADER, HeaderValue::from_bytes(b"\xff").unwrap());
        assert_eq!(name(Some(&caller), &headers), "token ci");
    }
}
