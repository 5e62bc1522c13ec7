//! Parsing of store URLs.
//!
//! This does not use a URL library, because `memory:NAME` and `sqlite:PATH` are not hierarchical URLs, and because every
//! part must be kept verbatim or rejected: a bucket name becomes part of a host name, a prefix part of keys.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use object_store::path::Path as ObjectPath;
use url::form_urlencoded;

use super::error::OpenError;

/// The maximum length of a URL.
const MAX_URL_BYTES: usize = 4096;
/// The maximum length of a prefix. It leaves room for qo's keys within the 1,024 bytes of an S3 key.
const MAX_PREFIX_BYTES: usize = 512;
/// The maximum length of a bucket name: 63 on most stores, 222 with dots on GCS.
const MAX_BUCKET_BYTES: usize = 222;

/// A parsed and valid store URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Address {
    /// A new in-memory store, or the existing one of this name.
    Memory { name: Option<String> },
    /// An SQLite file.
    Sqlite { path: PathBuf },
    /// A bucket in a cloud.
    Bucket(BucketAddress),
}

/// The address of a bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BucketAddress {
    pub(crate) cloud: Cloud,
    pub(crate) bucket: String,
    pub(crate) prefix: ObjectPath,
    pub(crate) parameters: BTreeMap<String, String>,
}

/// The provider of a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cloud {
    S3,
    Gcs,
    Azure,
}

impl Cloud {
    pub(crate) fn scheme(self) -> &'static str {
        match self {
            Self::S3 => "s3",
            Self::Gcs => "gs",
            Self::Azure => "az",
        }
    }

    #[cfg(not(all(feature = "s3", feature = "gcs", feature = "azure")))]
    pub(crate) fn feature(self) -> &'static str {
        match self {
            Self::S3 => "s3",
            Self::Gcs => "gcs",
            Self::Azure => "azure",
        }
    }

    fn has_parameter(self, name: &str) -> bool {
        name == "endpoint" || (self == Self::S3 && matches!(name, "region" | "profile"))
    }

    fn known_parameters(self) -> &'static [&'static str] {
        match self {
            Self::S3 => &["endpoint", "region", "profile"],
            Self::Gcs | Self::Azure => &["endpoint"],
        }
    }
}

impl fmt::Display for BucketAddress {
    /// The URL without its parameters.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.cloud.scheme(), self.bucket)?;
        if !self.prefix.as_ref().is_empty() {
            write!(f, "/{}", self.prefix)?;
        }
        Ok(())
    }
}

impl Address {
    pub(crate) fn parse(url: &str) -> Result<Self, OpenError> {
        let (scheme, rest) = url
            .get(..url.len().min(MAX_URL_BYTES))
            .filter(|cut| cut.len() == url.len())
            .and_then(|url| url.split_once(':'))
            .ok_or(OpenError::NotAUrl)?;
        let is_scheme = scheme.len() <= 32
            && scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.'));
        if !is_scheme {
            return Err(OpenError::NotAUrl);
        }
        match scheme.to_ascii_lowercase().as_str() {
            "memory" => parse_memory(rest),
            "sqlite" => parse_sqlite(rest),
            "s3" => parse_bucket(Cloud::S3, rest),
            "gs" => parse_bucket(Cloud::Gcs, rest),
            "az" => parse_bucket(Cloud::Azure, rest),
            _ => Err(OpenError::UnknownScheme {
                scheme: scheme.to_owned(),
            }),
        }
    }
}

fn parse_memory(rest: &str) -> Result<Address, OpenError> {
    let rest = no_parameters("memory", rest)?;
    if rest.is_empty() {
        return Ok(Address::Memory { name: None });
    }
    let is_name = rest.len() <= 64
        && rest
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.'));
    if !is_name {
        return Err(OpenError::MalformedUrl {
            scheme: "memory",
            reason: "write memory: or memory:NAME, with a name of at most 64 letters, digits, '_', '-' and '.'",
        });
    }
    Ok(Address::Memory {
        name: Some(rest.to_owned()),
    })
}

fn parse_sqlite(rest: &str) -> Result<Address, OpenError> {
    let rest = no_parameters("sqlite", rest)?;
    // Other tools write an absolute path as `sqlite:///a/b`.
    let path = match rest.strip_prefix("//") {
        Some(path) if path.starts_with('/') => path,
        Some(_) => {
            return Err(OpenError::MalformedUrl {
                scheme: "sqlite",
                reason: "write sqlite:PATH, with one slash before an absolute path",
            });
        }
        None => rest,
    };
    if path.is_empty() || path.ends_with('/') || path.contains('\0') {
        return Err(OpenError::MalformedUrl {
            scheme: "sqlite",
            reason: "it has no file name: write sqlite:PATH, such as sqlite:qo.db",
        });
    }
    Ok(Address::Sqlite { path: path.into() })
}

/// The text before a `?`. Fails if parameters follow.
fn no_parameters<'a>(scheme: &'static str, rest: &'a str) -> Result<&'a str, OpenError> {
    let Some((before, query)) = rest.split_once('?') else {
        return Ok(rest);
    };
    match form_urlencoded::parse(query.as_bytes()).next() {
        None => Ok(before),
        Some((name, _)) => Err(unknown_parameter(scheme, &name, &[])),
    }
}

fn unknown_parameter(scheme: &'static str, name: &str, known: &[&'static str]) -> OpenError {
    // Anything else may be the second half of a password that contains a question mark, and must not be repeated.
    let is_name = name
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.'));
    OpenError::UnknownParameter {
        scheme,
        name: if is_name {
            name.chars().take(32).collect()
        } else {
            "...".to_owned()
        },
        known: known.to_vec(),
    }
}

fn parse_bucket(cloud: Cloud, rest: &str) -> Result<Address, OpenError> {
    let scheme = cloud.scheme();
    let malformed = |reason| OpenError::MalformedUrl { scheme, reason };
    let rest = rest
        .strip_prefix("//")
        .ok_or_else(|| malformed("write two slashes after the scheme, as in s3://BUCKET"))?;
    if rest.contains('#') {
        return Err(malformed("'#' is not allowed"));
    }
    let (location, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (bucket, prefix) = location.split_once('/').unwrap_or((location, ""));
    if bucket.contains('@') {
        return Err(malformed(
            "it must not contain credentials; set them in the environment or in a profile",
        ));
    }
    if bucket.is_empty() {
        return Err(OpenError::MissingBucket { scheme });
    }
    let is_bucket = bucket.len() <= MAX_BUCKET_BYTES
        && bucket.starts_with(|c: char| c.is_ascii_alphanumeric())
        && bucket
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'));
    if !is_bucket {
        return Err(malformed(
            "a bucket name consists of letters, digits, '-', '_' and '.'; set the endpoint with ?endpoint=",
        ));
    }
    let prefix = prefix.trim_end_matches('/');
    let prefix = ObjectPath::from_url_path(prefix)
        .ok()
        .filter(|prefix| prefix.as_ref().len() <= MAX_PREFIX_BYTES)
        .ok_or_else(|| {
            malformed(
                "the prefix has an empty segment, a segment '.' or '..', or more than 512 bytes",
            )
        })?;
    let mut address = BucketAddress {
        cloud,
        bucket: bucket.to_owned(),
        prefix,
        parameters: BTreeMap::new(),
    };
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        if !cloud.has_parameter(&name) {
            return Err(unknown_parameter(scheme, &name, cloud.known_parameters()));
        }
        let is_empty = value.is_empty();
        let previous = address
            .parameters
            .insert(name.into_owned(), value.into_owned());
        if is_empty || previous.is_some() {
            return Err(malformed(
                "a parameter must be given at most once and must not be empty",
            ));
        }
    }
    Ok(Address::Bucket(address))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(url: &str) -> String {
        Address::parse(url).expect_err(url).to_string()
    }

    #[test]
    fn part_of_a_password_is_not_repeated() {
        let error = Address::parse("s3://user:pa?ssword@bucket").unwrap_err();
        assert!(!error.to_string().contains("ssword"), "{error}");
        let error = Address::parse("s3://bucket?regoin=x").unwrap_err();
        assert!(error.to_string().contains("regoin"), "{error}");
    }

    #[test]
    fn memory_and_sqlite() {
        assert_eq!(
            Address::parse("memory:").unwrap(),
            Address::Memory { name: None }
        );
        assert_eq!(
            Address::parse("memory:a-b").unwrap(),
            Address::Memory {
                name: Some("a-b".to_owned())
            }
        );
        for (url, path) in [
            ("sqlite:qo.db", "qo.db"),
            ("sqlite:/var/lib/qo.db", "/var/lib/qo.db"),
            ("sqlite:///var/lib/qo.db", "/var/lib/qo.db"),
            ("SQLite:a b.db", "a b.db"),
        ] {
            assert_eq!(
                Address::parse(url).unwrap(),
                Address::Sqlite { path: path.into() },
                "{url}"
            );
        }
    }

    #[test]
    fn buckets_with_prefix_and_parameters() {
        let Address::Bucket(address) = Address::parse(
            "s3://my-bucket/a/b%20c/?endpoint=http%3A%2F%2F127.0.0.1%3A9000&region=eu-west-1&profile=dev",
        )
        .unwrap() else {
            panic!("expected a bucket");
        };
        assert_eq!(address.bucket, "my-bucket");
        assert_eq!(address.prefix.as_ref(), "a/b c");
        assert_eq!(
            address.parameters.get("endpoint").map(String::as_str),
            Some("http://127.0.0.1:9000")
        );
        assert_eq!(
            address.parameters.get("region").map(String::as_str),
            Some("eu-west-1")
        );
        assert_eq!(
            address.parameters.get("profile").map(String::as_str),
            Some("dev")
        );
        assert!(matches!(
            Address::parse("gs://b"),
            Ok(Address::Bucket(BucketAddress {
                cloud: Cloud::Gcs,
                ..
            }))
        ));
    }

    #[test]
    fn every_error_is_one_clear_line() {
        for (url, text) in [
            (
                "",
                "not a store URL: use one of memory:, sqlite:PATH, s3://BUCKET, gs://BUCKET, az://CONTAINER, http(s)://SERVER, cluster://NODE,NODE,NODE, mdns:",
            ),
            (
                "bucket",
                "not a store URL: use one of memory:, sqlite:PATH, s3://BUCKET, gs://BUCKET, az://CONTAINER, http(s)://SERVER, cluster://NODE,NODE,NODE, mdns:",
            ),
            (
                "/a:b",
                "not a store URL: use one of memory:, sqlite:PATH, s3://BUCKET, gs://BUCKET, az://CONTAINER, http(s)://SERVER, cluster://NODE,NODE,NODE, mdns:",
            ),
            (
                "redis://u:secret@h",
                "unknown store scheme \"redis\": use one of memory:, sqlite:, s3:, gs:, az:, http:, https:, cluster:, mdns:",
            ),
            (
                "s3://",
                "the store URL has no bucket: write s3://BUCKET or s3://BUCKET/PREFIX",
            ),
            (
                "az:///x",
                "the store URL has no bucket: write az://BUCKET or az://BUCKET/PREFIX",
            ),
            (
                "s3:bucket",
                "the s3: store URL is malformed: write two slashes after the scheme, as in s3://BUCKET",
            ),
            (
                "s3://id:secret@b",
                "the s3: store URL is malformed: it must not contain credentials; set them in the environment or in a profile",
            ),
            (
                "s3://b:9000/x",
                "the s3: store URL is malformed: a bucket name consists of letters, digits, '-', '_' and '.'; set the endpoint with ?endpoint=",
            ),
            (
                "s3://b/a//c",
                "the s3: store URL is malformed: the prefix has an empty segment, a segment '.' or '..', or more than 512 bytes",
            ),
            (
                "s3://b/a/../c",
                "the s3: store URL is malformed: the prefix has an empty segment, a segment '.' or '..', or more than 512 bytes",
            ),
            (
                "s3://b#x",
                "the s3: store URL is malformed: '#' is not allowed",
            ),
            (
                "s3://b?engine=direct",
                "unknown parameter \"engine\" in the s3: store URL: use endpoint, region or profile",
            ),
            (
                "gs://b?region=x",
                "unknown parameter \"region\" in the gs: store URL: the only parameter is endpoint",
            ),
            (
                "s3://b?region=a&region=b",
                "the s3: store URL is malformed: a parameter must be given at most once and must not be empty",
            ),
            (
                "sqlite:",
                "the sqlite: store URL is malformed: it has no file name: write sqlite:PATH, such as sqlite:qo.db",
            ),
            (
                "sqlite://a",
                "the sqlite: store URL is malformed: write sqlite:PATH, with one slash before an absolute path",
            ),
            (
                "sqlite:a?mode=ro",
                "unknown parameter \"mode\" in the sqlite: store URL: it takes no parameters",
            ),
            (
                "memory:a/b",
                "the memory: store URL is malformed: write memory: or memory:NAME, with a name of at most 64 letters, digits, '_', '-' and '.'",
            ),
        ] {
            assert_eq!(error(url), text, "{url}");
            assert!(!error(url).contains("secret"));
        }
        assert_eq!(
            Address::parse(&format!("s3://{}", "a".repeat(5_000))),
            Err(OpenError::NotAUrl)
        );
        assert!(Address::parse(&format!("s3://{}", "é".repeat(2_047))).is_err());
    }
}
