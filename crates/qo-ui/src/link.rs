//! An address that opens the dashboard with a session in its fragment.
//!
//! A browser sends no fragment to any server, and the page takes it out of its address before it does anything else. What is handed
//! over is the narrowest that the store can make: a session that ends by itself and may do no more than asked; else the session
//! that the caller has; and long-lived keys only if the caller says so.

use qo_core::Timestamp;
use qo_store::admin::BucketAdmin;
use qo_store::browser::{BrowserCredentials, BrowserRights, BucketLocation, SessionRequest};
use qo_store::{Store, StoreError};
use serde::Serialize;
use thiserror::Error;

use crate::assets::INDEX;
use crate::deploy::FOLDER;

/// What the link should allow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkWish {
    /// What the session may do, for how long, and in which role.
    pub session: SessionRequest,
    /// Whether keys that do not end by themselves may be handed over where there is no session.
    pub allow_long_lived: bool,
    /// Where the dashboard is; in the bucket's own `ui/`, if not said.
    pub page: Option<String>,
    /// Which of its pages to open, such as `tasks/ID`.
    pub go: Option<String>,
}

/// A link, and what is to be said of it.
#[derive(Clone, PartialEq, Eq, Serialize)]
pub struct Link {
    /// The address. It is a secret.
    pub url: String,
    /// When it ends, if it does and that is known.
    pub expires_at: Option<Timestamp>,
    /// What could not be done, in sentences.
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

/// Why there is no link.
#[derive(Debug, Error)]
pub enum LinkError {
    /// No browser can call this store.
    #[error(
        "a browser cannot call {store} by itself: run `qo serve`, which brings the dashboard with it"
    )]
    NoBrowser {
        /// The store.
        store: String,
    },
    /// Only long-lived keys are there, and nobody said that they may be handed over.
    #[error(
        "no session could be made ({reason}), and the keys at hand do not end by themselves: give a role with --role, use a session of your own, or hand the keys over as they are with --allow-long-lived"
    )]
    LongLived {
        /// Why no session could be made.
        reason: String,
    },
    /// The store could not be asked.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What the page is handed. The names are the page's.
#[derive(Serialize)]
struct Handover<'a> {
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

/// Makes a link.
pub async fn link(store: &Store, wish: &LinkWish) -> Result<Link, LinkError> {
    let admin = store.admin.as_deref();
    let Some((admin, place)) = admin.and_then(|admin| Some((admin, admin.browser_location()?)))
    else {
        return Err(LinkError::NoBrowser {
            store: store.description.clone(),
        });
    };
    let mut notes = Vec::new();
    let credentials = credentials(admin, wish, &mut notes).await?;
    Ok(Link {
        url: address(&place, &credentials, wish),
        expires_at: credentials.expires_at,
        notes,
    })
}

async fn credentials(
    admin: &dyn BucketAdmin,
    wish: &LinkWish,
    notes: &mut Vec<String>,
) -> Result<BrowserCredentials, LinkError> {
    let own = admin.own_credentials().await?;
    let is_session = own.session_token.is_some();
    // Sessions cannot make sessions without a role.
    let made = if is_session && wish.session.role.is_none() {
        Err("the credentials at hand are a session already".to_owned())
    } else {
        admin
            .browser_session(&wish.session)
            .await
            .map_err(|error| error.to_string())
    };
    let reason = match made {
        Ok(session) => return Ok(session),
        Err(reason) => reason,
    };
    let read_only = wish.session.rights == BrowserRights::Read;
    if is_session {
        notes.push("The link carries the session at hand, with its rights and its end.".to_owned());
    } else if wish.allow_long_lived {
        notes.push(format!("The link carries keys that do not end by themselves, because no session could be made ({reason}). Whoever sees the link has them."));
    } else {
        return Err(LinkError::LongLived { reason });
    }
    if read_only {
        notes.push(
            "The page refuses to act, but the credentials themselves may allow more.".to_owned(),
        );
    }
    Ok(own)
}

fn address(place: &BucketLocation, credentials: &BrowserCredentials, wish: &LinkWish) -> String {
    let page = wish
        .page
        .clone()
        .unwrap_or_else(|| place.url_of(&format!("{FOLDER}/{INDEX}")));
    let handover = Handover {
        endpoint: &place.endpoint,
        bucket: &place.bucket,
        prefix: &place.prefix,
        region: &place.region,
        virtual_host: place.virtual_host,
        access_key_id: &credentials.access_key_id,
        secret_access_key: &credentials.secret_access_key,
        session_token: credentials.session_token.as_deref(),
        expires: credentials.expires_at,
        mode: match wish.session.rights {
            BrowserRights::Read => "read",
            BrowserRights::Operate => "operate",
        },
    };
    // A record of texts always becomes JSON.
    let text = serde_json::to_string(&handover).unwrap_or_default();
    let go = wish.go.as_deref().map(|go| format!("&go={}", escape(go)));
    format!(
        "{page}#connect={}{}",
        base64_url(text.as_bytes()),
        go.unwrap_or_default()
    )
}

/// Base64 with the alphabet of addresses, without padding.
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
    fn base64_of_the_standard_examples() {
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
    fn places_are_escaped() {
        assert_eq!(
            escape("tasks?tab=failed&q=a b"),
            "tasks%3Ftab%3Dfailed%26q%3Da%20b"
        );
    }
}
