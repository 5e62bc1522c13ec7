//! What the fuzzers of this crate run. Each function takes any bytes, and panics where something does not hold.

#![expect(clippy::missing_panics_doc, reason = "a target fails by panicking")]

use crate::open::FuzzedAddress as Address;

pub use crate::s3::fuzz::s3_documents;

/// The URL of a store. Nothing is opened.
///
/// What is refused is refused with a sentence that does not repeat the URL, which may hold a password.
pub fn store_url(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    match Address::parse(text) {
        Ok(address) => {
            // It is read the same way twice.
            let again = format!("{:?}", Address::parse(text));
            assert_eq!(again, format!("Ok({address:?})"));
        }
        Err(error) => {
            let said = error.to_string();
            assert!(!said.is_empty());
            if let Some((_, password)) = userinfo(text) {
                assert!(!said.contains(password), "{said}");
            }
        }
    }
}

/// The name and the password in a URL, if they are long enough not to be in a sentence by chance.
fn userinfo(text: &str) -> Option<(&str, &str)> {
    let (userinfo, _) = text.split_once("://")?.1.split_once('@')?;
    let (name, password) = userinfo.split_once(':')?;
    (password.len() > 12 && !password.contains('/')).then_some((name, password))
}
