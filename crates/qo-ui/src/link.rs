//! URLs that open the dashboard with credentials in the fragment.
//!
//! A browser never sends the fragment to a server, and the page removes it from its address before anything else. The link contains the
//! narrowest credentials available: a new session with the requested rights, else the caller's own session, and long-lived keys only
//! with the caller's consent.

use qo_core::Timestamp;
use qo_store::admin::BucketAdmin;
use qo_store::browser::{BrowserCredentials, BrowserRights, BucketLocation, SessionRequest};
use qo_store::{Store, StoreError};
use serde::Serialize;
use thiserror::Error;

use crate::assets::INDEX;
use crate::deploy::FOLDER;

/// A request for a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkRequest {
    /// Rights, lifetime and role of the session.
    pub session: SessionRequest,
    /// Whether the link may contain long-lived keys if no session can be issued.
    pub allow_long_lived: bool,
    /// URL of the dashboard; by default the bucket's `ui/`.
    pub page: Option<String>,
    /// Page to open, such as `tasks/ID`.
    pub go: Option<String>,
}

/// A link to the dashboard.
#[derive(Clone, PartialEq, Eq, Serialize)]
pub struct Link {
    /// The URL. It is a secret.
    pub url: String,
    /// When the credentials expire, if known.
    pub expires_at: Option<Timestamp>,
    /// Notes for the user.
    pub notes: Vec<String>,
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link")
            .field("expires_at", &self.expires_at)
            .field("notes", &self.notes)
            .finish_non_exhaustive()
    }
}

/// Why a link could not be created.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LinkError {
    /// Browsers cannot access this store.
    #[error(
        "browsers cannot access {store} directly: use `qo serve`, which includes the dashboard"
    )]
    NoBrowser {
        /// The store.
        store: String,
    },
    /// Only long-lived keys are available, and the request does not allow them.
    #[error(
        "cannot issue a session ({reason}), and the available keys are long-lived: pass a role with --role, use temporary credentials, or allow the keys with --allow-long-lived"
    )]
    LongLived {
        /// Why no session could be issued.
        reason: String,
    },
    /// A request to the store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The connection details in the fragment, with the names that the page expects.
#[derive(Serialize)]
struct LinkPayload<'a> {
    endpoint: &'a str,
    bucket: &'a str,
    prefix: &'a str,
    region: &'a str,
    virtual_host: bool,
    access_key_id: &'a str,
    secret_access_key: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    session_token: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires: Option<Timestamp>,
    mode: &'static str,
}

/// The connection to a server in the fragment, with the names that the page expects.
#[derive(Serialize)]
struct ServerPayload<'a> {
    url: &'a str,
    token: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires: Option<Timestamp>,
    mode: &'static str,
}

/// Access to a server, for a link.
#[derive(Clone, Copy)]
pub struct ServerAccess<'a> {
    /// The server's URL.
    pub server: &'a str,
    /// The token, if the link has one.
    pub token: Option<&'a str>,
    /// When the token expires, if it does.
    pub expires_at: Option<Timestamp>,
    /// Whether the page offers no actions.
    pub read_only: bool,
}

/// The URL that opens the dashboard of a server, or the dashboard at `page`, with its token in the fragment.
pub fn server_url(access: ServerAccess<'_>, page: Option<&str>, go: Option<&str>) -> String {
    let server = access.server.trim_end_matches('/');
    let page = page.map_or_else(|| format!("{server}/{FOLDER}/"), str::to_owned);
    match access.token {
        Some(token) => {
            let payload = ServerPayload {
                url: server,
                token,
                expires: access.expires_at,
                mode: if access.read_only { "read" } else { "operate" },
            };
            with_fragment(&page, &payload, go)
        }
        None => format!("{page}#/{}", go.unwrap_or("overview")),
    }
}

/// Creates a link.
pub async fn link(store: &Store, request: &LinkRequest) -> Result<Link, LinkError> {
    let admin = store.admin.as_deref();
    let Some((admin, location)) = admin.and_then(|admin| Some((admin, admin.browser_location()?)))
    else {
        return Err(LinkError::NoBrowser {
            store: store.description.clone(),
        });
    };
    let mut notes = Vec::new();
    let credentials = credentials(admin, request, &mut notes).await?;
    Ok(Link {
        url: link_url(&location, &credentials, request),
        expires_at: credentials.expires_at,
        notes,
    })
}

async fn credentials(
    admin: &dyn BucketAdmin,
    request: &LinkRequest,
    notes: &mut Vec<String>,
) -> Result<BrowserCredentials, LinkError> {
    let own = admin.own_credentials().await?;
    let is_session = own.session_token.is_some();
    // A session cannot issue another session without a role.
    let issued = if is_session && request.session.role.is_none() {
        Err("the credentials are already a session".to_owned())
    } else {
        admin
            .browser_session(&request.session)
            .await
            .map_err(|error| error.to_string())
    };
    let reason = match issued {
        Ok(session) => return Ok(session),
        Err(reason) => reason,
    };
    let read_only = request.session.rights == BrowserRights::Read;
    if is_session {
        notes
            .push("The link contains your current session, with its rights and expiry.".to_owned());
    } else if request.allow_long_lived {
        notes.push(format!("The link contains long-lived keys, because no session could be issued ({reason}). Anyone who sees the link has them."));
    } else {
        return Err(LinkError::LongLived { reason });
    }
    if read_only {
        notes.push(
            "The page is read-only, but the credentials themselves may allow changes.".to_owned(),
        );
    }
    Ok(own)
}

fn link_url(
    location: &BucketLocation,
    credentials: &BrowserCredentials,
    request: &LinkRequest,
) -> String {
    let page = request
        .page
        .clone()
        .unwrap_or_else(|| location.url_of(&format!("{FOLDER}/{INDEX}")));
    let payload = LinkPayload {
        endpoint: &location.endpoint,
        bucket: &location.bucket,
        prefix: &location.prefix,
        region: &location.region,
        virtual_host: location.virtual_host,
        access_key_id: &credentials.access_key_id,
        secret_access_key: &credentials.secret_access_key,
        session_token: credentials.session_token.as_deref(),
        expires: credentials.expires_at,
        mode: match request.session.rights {
            BrowserRights::Read => "read",
            BrowserRights::Operate => "operate",
        },
    };
    with_fragment(&page, &payload, request.go.as_deref())
}

/// The URL of the page with what it connects to, and the page to open.
fn with_fragment(page: &str, payload: &impl Serialize, go: Option<&str>) -> String {
    // Serialising strings cannot fail.
    let text = serde_json::to_string(payload).unwrap_or_default();
    let go = go.map(|go| format!("&go={}", escape(go)));
    format!(
        "{page}#connect={}{}",
        base64_url(text.as_bytes()),
        go.unwrap_or_default()
    )
}

/// Base64 with the URL-safe alphabet, without padding.
fn base64_url(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let word = chunk
            .iter()
            .fold(0_u32, |word, byte| word << 8 | u32::from(*byte))
            << (8 * (3 - chunk.len()));
        for digit in 0..=chunk.len() {
            text.push(char::from(DIGITS[(word >> (18 - 6 * digit)) as usize & 63]));
        }
    }
    text
}

fn escape(text: &str) -> String {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.~/".contains(byte);
    text.bytes()
        .map(|byte| {
            if plain(&byte) {
                char::from(byte).to_string()
            } else {
                format!("%{byte:02X}")
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_encodes_the_standard_examples() {
        for (plain, encoded) in [
            ("", ""),
            ("f", "Zg"),
            ("fo", "Zm8"),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg"),
            ("fooba", "Zm9vYmE"),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64_url(plain.as_bytes()), encoded);
        }
        assert_eq!(base64_url(&[0xfb, 0xff]), "-_8");
    }

    #[test]
    fn the_link_to_a_server_has_its_token_only_in_the_fragment() {
        let access = ServerAccess {
            server: "https://queue.example.org/sub/",
            token: Some("qo_1_2"),
            expires_at: None,
            read_only: true,
        };
        let payload = r#"{"url":"https://queue.example.org/sub","token":"qo_1_2","mode":"read"}"#;
        let fragment = base64_url(payload.as_bytes());
        assert_eq!(
            server_url(access, None, Some("tasks")),
            format!("https://queue.example.org/sub/ui/#connect={fragment}&go=tasks")
        );
        assert!(
            server_url(access, Some("https://a/b.html"), None)
                .starts_with("https://a/b.html#connect=")
        );
        let open = ServerAccess {
            token: None,
            ..access
        };
        assert_eq!(
            server_url(open, None, None),
            "https://queue.example.org/sub/ui/#/overview"
        );
    }

    #[test]
    fn page_names_are_escaped() {
        assert_eq!(
            escape("tasks?tab=failed&q=a b"),
            "tasks%3Ftab%3Dfailed%26q%3Da%20b"
        );
    }
}
