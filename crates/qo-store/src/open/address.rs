//! Store URLs, taken apart.
//!
//! Parsed here and not by a URL library, because `memory:NAME` and `sqlite:PATH` are no hierarchical URLs, and because
//! every part must be refused or kept exactly: a bucket name goes into a host name, a prefix into keys.

use std::path::PathBuf;

use object_store::path::Path as ObjectPath;
use url::form_urlencoded;

use super::error::OpenError;

/// The longest URL that is looked at.
const MAX_URL_BYTES: usize = 4096;
/// The longest prefix: keys of 1024 bytes must still fit behind it.
const MAX_PREFIX_BYTES: usize = 512;
/// The longest bucket name of any store is 63, or 222 with dots in GCS.
const MAX_BUCKET_BYTES: usize = 222;

/// A store URL, taken apart and valid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Address {
    /// A new store in memory, or the process's one of this name.
    Memory { name: Option<String> },
    /// A file.
    Sqlite { path: PathBuf },
    /// A bucket.
    Bucket(BucketAddress),
}

/// A bucket in a cloud.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BucketAddress {
    pub(crate) cloud: Cloud,
    pub(crate) bucket: String,
    pub(crate) prefix: ObjectPath,
    pub(crate) endpoint: Option<String>,
    pub(crate) region: Option<String>,
    pub(crate) profile: Option<String>,
}

/// Whose bucket it is.
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

    fn known_parameters(self) -> &'static str {
        match self {
            Self::S3 => "known are endpoint, region and profile",
            Self::Gcs | Self::Azure => "only endpoint is known",
        }
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
    // `sqlite:///a/b` is how others write an absolute path.
    let path = match rest.strip_prefix("//") {
        Some(path) if path.starts_with('/') => path,
        Some(_) => {
            return Err(OpenError::MalformedUrl {
                scheme: "sqlite",
                reason: "write sqlite:PATH, with at most one slash before an absolute path",
            });
        }
        None => rest,
    };
    if path.is_empty() || path.ends_with('/') || path.contains('\0') {
        return Err(OpenError::MalformedUrl {
            scheme: "sqlite",
            reason: "it names no file: write sqlite:PATH, such as sqlite:qo.db",
        });
    }
    Ok(Address::Sqlite { path: path.into() })
}

/// The text before a `?`, after which there may be nothing for this kind of store.
fn no_parameters<'a>(scheme: &'static str, rest: &'a str) -> Result<&'a str, OpenError> {
    let Some((before, query)) = rest.split_once('?') else {
        return Ok(rest);
    };
    match form_urlencoded::parse(query.as_bytes()).next() {
        None => Ok(before),
        Some((name, _)) => Err(unknown_parameter(scheme, &name, "it takes none")),
    }
}

fn unknown_parameter(scheme: &'static str, name: &str, known: &'static str) -> OpenError {
    // What is no name may be the second half of a password with a question mark in it, and is not repeated.
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
        known,
    }
}

fn parse_bucket(cloud: Cloud, rest: &str) -> Result<Address, OpenError> {
    let scheme = cloud.scheme();
    let malformed = |reason| OpenError::MalformedUrl { scheme, reason };
    let rest = rest.strip_prefix("//").ok_or_else(|| {
        malformed("two slashes belong between the scheme and the bucket, as in s3://BUCKET")
    })?;
    if rest.contains('#') {
        return Err(malformed("it may have no '#'"));
    }
    let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (bucket, prefix) = place.split_once('/').unwrap_or((place, ""));
    if bucket.contains('@') {
        return Err(malformed(
            "credentials do not belong into it; give them in the environment or in a profile",
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
            "a bucket name has letters, digits, '-', '_' and '.' only; an endpoint goes into ?endpoint=",
        ));
    }
    let prefix = prefix.trim_end_matches('/');
    let prefix = ObjectPath::from_url_path(prefix)
        .ok()
        .filter(|prefix| prefix.as_ref().len() <= MAX_PREFIX_BYTES)
        .ok_or_else(|| {
            malformed(
                "its prefix has an empty part, a part '.' or '..', or is longer than 512 bytes",
            )
        })?;
    let mut address = BucketAddress {
        cloud,
        bucket: bucket.to_owned(),
        prefix,
        endpoint: None,
        region: None,
        profile: None,
    };
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        let slot = match (cloud, name.as_ref()) {
            (_, "endpoint") => &mut address.endpoint,
            (Cloud::S3, "region") => &mut address.region,
            (Cloud::S3, "profile") => &mut address.profile,
            _ => return Err(unknown_parameter(scheme, &name, cloud.known_parameters())),
        };
        if value.is_empty() || slot.is_some() {
            return Err(malformed("each parameter may be given once, and not empty"));
        }
        *slot = Some(value.into_owned());
    }
    Ok(Address::Bucket(address))
}

/// An endpoint: `http` or `https`, a host, perhaps a port and a path, and nothing else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Endpoint {
    /// As it was given, without a slash at its end.
    pub(crate) url: String,
    /// Host and port, as they stand in a request.
    pub(crate) authority: String,
    /// Whether it is plain HTTP.
    pub(crate) is_http: bool,
}

impl Endpoint {
    pub(crate) fn parse(setting: &str, text: &str) -> Result<Self, OpenError> {
        let bad = |reason| OpenError::BadSetting {
            setting: setting.to_owned(),
            reason,
        };
        let shape = "expected an endpoint such as https://s3.example.org or http://127.0.0.1:9000";
        let uri: http::Uri = text.parse().map_err(|_| bad(shape))?;
        let authority = uri.authority().ok_or_else(|| bad(shape))?;
        if authority.as_str().contains('@') {
            return Err(bad(
                "an endpoint holds no credentials; give them in the environment or in a profile",
            ));
        }
        let is_http = match uri.scheme_str() {
            Some("http") => true,
            Some("https") => false,
            _ => return Err(bad(shape)),
        };
        if uri.query().is_some() || text.contains('#') || url::Url::parse(text).is_err() {
            return Err(bad(shape));
        }
        Ok(Self {
            url: text.trim_end_matches('/').to_owned(),
            authority: authority.as_str().to_owned(),
            is_http,
        })
    }

    /// Scheme, host and port: what is safe and useful to print.
    pub(crate) fn origin(&self) -> String {
        let scheme = if self.is_http { "http" } else { "https" };
        format!("{scheme}://{}", self.authority)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(url: &str) -> String {
        Address::parse(url).expect_err(url).to_string()
    }

    #[test]
    fn half_a_password_is_not_repeated() {
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
            panic!("a bucket");
        };
        assert_eq!(address.bucket, "my-bucket");
        assert_eq!(address.prefix.as_ref(), "a/b c");
        assert_eq!(address.endpoint.as_deref(), Some("http://127.0.0.1:9000"));
        assert_eq!(address.region.as_deref(), Some("eu-west-1"));
        assert_eq!(address.profile.as_deref(), Some("dev"));
        assert!(matches!(
            Address::parse("gs://b"),
            Ok(Address::Bucket(BucketAddress {
                cloud: Cloud::Gcs,
                ..
            }))
        ));
    }

    #[test]
    fn every_fault_is_one_clear_line() {
        for (url, text) in [
            (
                "",
                "this is not a store URL: give one of memory:, sqlite:PATH, s3://BUCKET, gs://BUCKET, az://CONTAINER",
            ),
            (
                "bucket",
                "this is not a store URL: give one of memory:, sqlite:PATH, s3://BUCKET, gs://BUCKET, az://CONTAINER",
            ),
            (
                "/a:b",
                "this is not a store URL: give one of memory:, sqlite:PATH, s3://BUCKET, gs://BUCKET, az://CONTAINER",
            ),
            (
                "redis://u:secret@h",
                "unknown store scheme \"redis\": use one of memory:, sqlite:, s3:, gs:, az:",
            ),
            (
                "s3://",
                "the store URL names no bucket: write s3://BUCKET or s3://BUCKET/PREFIX",
            ),
            (
                "az:///x",
                "the store URL names no bucket: write az://BUCKET or az://BUCKET/PREFIX",
            ),
            (
                "s3:bucket",
                "the s3: store URL is malformed: two slashes belong between the scheme and the bucket, as in s3://BUCKET",
            ),
            (
                "s3://id:secret@b",
                "the s3: store URL is malformed: credentials do not belong into it; give them in the environment or in a profile",
            ),
            (
                "s3://b:9000/x",
                "the s3: store URL is malformed: a bucket name has letters, digits, '-', '_' and '.' only; an endpoint goes into ?endpoint=",
            ),
            (
                "s3://b/a//c",
                "the s3: store URL is malformed: its prefix has an empty part, a part '.' or '..', or is longer than 512 bytes",
            ),
            (
                "s3://b/a/../c",
                "the s3: store URL is malformed: its prefix has an empty part, a part '.' or '..', or is longer than 512 bytes",
            ),
            (
                "s3://b#x",
                "the s3: store URL is malformed: it may have no '#'",
            ),
            (
                "s3://b?engine=direct",
                "unknown parameter \"engine\" in the s3: store URL: known are endpoint, region and profile",
            ),
            (
                "gs://b?region=x",
                "unknown parameter \"region\" in the gs: store URL: only endpoint is known",
            ),
            (
                "s3://b?region=a&region=b",
                "the s3: store URL is malformed: each parameter may be given once, and not empty",
            ),
            (
                "sqlite:",
                "the sqlite: store URL is malformed: it names no file: write sqlite:PATH, such as sqlite:qo.db",
            ),
            (
                "sqlite://a",
                "the sqlite: store URL is malformed: write sqlite:PATH, with at most one slash before an absolute path",
            ),
            (
                "sqlite:a?mode=ro",
                "unknown parameter \"mode\" in the sqlite: store URL: it takes none",
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

    #[test]
    fn endpoints() {
        let endpoint = Endpoint::parse("S3_ENDPOINT", "http://127.0.0.1:9000/").unwrap();
        assert_eq!(endpoint.url, "http://127.0.0.1:9000");
        assert_eq!(endpoint.authority, "127.0.0.1:9000");
        assert!(endpoint.is_http);
        assert_eq!(endpoint.origin(), "http://127.0.0.1:9000");
        for bad in [
            "",
            "127.0.0.1:9000",
            "ftp://a",
            "https://",
            "https://a?b=c",
            "https://a#b",
            "http://u:secret@h",
        ] {
            let error = Endpoint::parse("S3_ENDPOINT", bad)
                .expect_err(bad)
                .to_string();
            assert!(error.starts_with("S3_ENDPOINT cannot be used: "), "{error}");
            assert!(!error.contains("secret"));
        }
    }
}
