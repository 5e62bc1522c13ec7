//! Fuzz targets of this crate. Each takes arbitrary bytes and panics when a property does not hold.

#![expect(clippy::missing_panics_doc, reason = "a target fails by panicking")]

use crate::open::FuzzedAddress as Address;

pub use crate::s3::fuzz::s3_documents;

/// Parses a store URL without opening the store.
///
/// An error message must not repeat the URL, which may contain a password.
pub fn store_url(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    match Address::parse(text) {
        Ok(address) => {
            // Parsing is deterministic.
            let again = format!("{:?}", Address::parse(text));
            assert_eq!(again, format!("Ok({address:?})"));
        }
        Err(error) => {
            let message = error.to_string();
            assert!(!message.is_empty());
            if let Some((_, password)) = userinfo(text) {
                assert!(!message.contains(password), "{message}");
            }
        }
    }
}

/// The user name and password in a URL, if the password is too long to occur in a message by chance.
fn userinfo(text: &str) -> Option<(&str, &str)> {
    let (userinfo, _) = text.split_once("://")?.1.split_once('@')?;
    let (name, password) = userinfo.split_once(':')?;
    (password.len() > 12 && !password.contains('/')).then_some((name, password))
}
