//! Signs S3 requests (AWS Signature Version 4), as far as the kit needs it: a path that needs no escaping, at most one
//! subresource such as `?versioning`, and the three headers that every request carries.
//!
//! The kit signs by itself, and not with the code under test, so that a fault there cannot hide itself here.

use chrono::DateTime;
use ring::{digest, hmac};

use crate::random::encode;

/// SeaweedFS takes any region; this one is the usual default.
const REGION: &str = "us-east-1";
const ALGORITHM: &str = "AWS4-HMAC-SHA256";
const SIGNED_HEADERS: &str = "host;x-amz-content-sha256;x-amz-date";

/// Who signs.
#[derive(Clone)]
pub(crate) struct Credentials {
    pub(crate) access_key: String,
    pub(crate) secret_key: String,
}

/// What is signed.
#[derive(Clone, Copy)]
pub(crate) struct Signable<'a> {
    pub(crate) method: &'a str,
    pub(crate) host: &'a str,
    pub(crate) path: &'a str,
    pub(crate) subresource: Option<&'a str>,
    pub(crate) body: &'a [u8],
}

/// The headers that make a request a signed one, as names and values.
pub(crate) fn headers(
    request: Signable<'_>,
    credentials: &Credentials,
    unix_s: i64,
) -> [(&'static str, String); 3] {
    let at = DateTime::from_timestamp(unix_s, 0)
        .unwrap_or_default()
        .format("%Y%m%dT%H%M%SZ")
        .to_string();
    let day = at.get(..8).unwrap_or_default();
    let body_hash = sha256(request.body);
    let query = request
        .subresource
        .map(|name| format!("{name}="))
        .unwrap_or_default();
    let Signable {
        method, host, path, ..
    } = request;
    let canonical = format!(
        "{method}\n{path}\n{query}\nhost:{host}\nx-amz-content-sha256:{body_hash}\nx-amz-date:{at}\n\n{SIGNED_HEADERS}\n{body_hash}"
    );
    let scope = format!("{day}/{REGION}/s3/aws4_request");
    let to_sign = format!(
        "{ALGORITHM}\n{at}\n{scope}\n{}",
        sha256(canonical.as_bytes())
    );

    let secret = format!("AWS4{}", credentials.secret_key).into_bytes();
    let key = [day, REGION, "s3", "aws4_request"]
        .iter()
        .fold(secret, |key, part| hmac_sha256(&key, part.as_bytes()));
    let signature = encode(&hmac_sha256(&key, to_sign.as_bytes()));
    let authorization = format!(
        "{ALGORITHM} Credential={}/{scope},SignedHeaders={SIGNED_HEADERS},Signature={signature}",
        credentials.access_key
    );
    [
        ("x-amz-content-sha256", body_hash),
        ("x-amz-date", at),
        ("authorization", authorization),
    ]
}

fn sha256(data: &[u8]) -> String {
    encode(digest::digest(&digest::SHA256, data).as_ref())
}

fn hmac_sha256(key: &[u8], data: &[u8]) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), data)
        .as_ref()
        .to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The request for a bucket's lifecycle rules that the documentation of S3 signs as an example.
    #[test]
    fn the_documented_example_has_the_documented_signature() {
        let request = Signable {
            method: "GET",
            host: "examplebucket.s3.amazonaws.com",
            path: "/",
            subresource: Some("lifecycle"),
            body: b"",
        };
        let credentials = Credentials {
            access_key: "AKIAIOSFODNN7EXAMPLE".into(),
            secret_key: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".into(),
        };
        let [_, (_, at), (_, authorization)] = headers(request, &credentials, 1_369_353_600);
        assert_eq!(at, "20130524T000000Z");
        let signature = "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543";
        assert!(authorization.ends_with(signature), "{authorization}");
    }
}
