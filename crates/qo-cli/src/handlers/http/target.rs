//! The URL and headers of requests, validated when the worker starts.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use thiserror::Error;
use url::{Host, Url};

use super::address::is_public;

/// Headers that the handler or the protocol sets.
const RESERVED: [&str; 8] = [
    "connection",
    "content-length",
    "content-type",
    "expect",
    "host",
    "idempotency-key",
    "transfer-encoding",
    "upgrade",
];

/// Why a URL or a header is invalid.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TargetError {
    /// Not a URL.
    #[error("{text:?} is not a valid URL: {problem}; expected a form such as https://host/path")]
    NotAUrl {
        /// The text, without credentials.
        text: String,
        /// The problem.
        problem: String,
    },
    /// Another protocol.
    #[error("unsupported URL scheme {scheme}; use http or https")]
    Scheme {
        /// The scheme.
        scheme: String,
    },
    /// A user or a password.
    #[error(
        "the URL for {host} contains credentials, which would appear in logs; remove them and use --http-header 'Authorization: ...${{VARIABLE}}'"
    )]
    Credentials {
        /// The host of the URL.
        host: String,
    },
    /// An address that is not allowed.
    #[error("{address} is not on the public internet; to allow it, add --allow-private-addresses")]
    Private {
        /// The address.
        address: IpAddr,
    },
    /// Not a header.
    #[error("invalid header {name:?}: {problem}")]
    Header {
        /// The part before the colon.
        name: String,
        /// The problem.
        problem: String,
    },
    /// A variable that is not set.
    #[error("header {name} refers to the environment variable {variable}, which is not set")]
    Variable {
        /// The header.
        name: String,
        /// The variable.
        variable: String,
    },
}

/// A validated URL.
#[derive(Clone, PartialEq, Eq)]
pub struct Target(Url);

impl Target {
    /// Validates a URL. An address in it is checked here, a name when it is resolved.
    pub fn parse(text: &str, allow_private: bool) -> Result<Self, TargetError> {
        let url = Url::parse(text.trim()).map_err(|error| TargetError::NotAUrl {
            // The part before an @ may contain a password.
            text: text.rsplit('@').next().unwrap_or_default().to_owned(),
            problem: error.to_string(),
        })?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(TargetError::Scheme {
                scheme: url.scheme().to_owned(),
            });
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(TargetError::Credentials {
                host: url.host_str().unwrap_or_default().to_owned(),
            });
        }
        let address = match url.host() {
            Some(Host::Ipv4(address)) => Some(IpAddr::V4(address)),
            Some(Host::Ipv6(address)) => Some(IpAddr::V6(address)),
            Some(Host::Domain(_)) | None => None,
        };
        match address {
            Some(address) if !allow_private && !is_public(address) => {
                Err(TargetError::Private { address })
            }
            _ => Ok(Self(url)),
        }
    }

    /// The URL.
    pub(super) fn url(&self) -> Url {
        self.0.clone()
    }
}

impl fmt::Display for Target {
    /// Omits the query, which may contain a key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = self.0.clone();
        shown.set_query(None);
        shown.set_fragment(None);
        f.write_str(shown.as_str())
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Target({self})")
    }
}

/// Headers sent with every request, and the variables used in them.
#[derive(Debug, Clone, Default)]
pub struct Headers {
    /// The headers, marked as sensitive so that their values are never printed.
    pub headers: HeaderMap,
    /// The variables used in the values.
    pub variables: Vec<String>,
}

impl Headers {
    /// Parses lines of the form `Name: value`. In a value, `${VARIABLE}` expands to an environment variable.
    pub fn parse<'a>(
        lines: impl IntoIterator<Item = &'a str>,
        environment: &BTreeMap<String, String>,
    ) -> Result<Self, TargetError> {
        let mut headers = Self::default();
        for line in lines {
            let (name, value) = line.split_once(':').ok_or_else(|| TargetError::Header {
                name: line
                    .split_whitespace()
                    .next()
                    .unwrap_or_default()
                    .to_owned(),
                problem: "missing colon; expected 'Name: value'".to_owned(),
            })?;
            headers.add(name.trim(), value.trim(), environment)?;
        }
        Ok(headers)
    }

    fn add(
        &mut self,
        name: &str,
        value: &str,
        environment: &BTreeMap<String, String>,
    ) -> Result<(), TargetError> {
        let problem = |problem: &str| TargetError::Header {
            name: name.to_owned(),
            problem: problem.to_owned(),
        };
        let header = HeaderName::from_bytes(name.as_bytes())
            .map_err(|_| problem("not a valid header name"))?;
        if RESERVED.contains(&header.as_str()) || header.as_str().starts_with("qo-") {
            return Err(problem("qo sets this header"));
        }
        let mut expanded = String::new();
        let mut rest = value;
        while let Some((before, after)) = rest.split_once("${") {
            let (variable, after) = after
                .split_once('}')
                .ok_or_else(|| problem("its value contains ${ without }"))?;
            let variable_value =
                environment
                    .get(variable)
                    .ok_or_else(|| TargetError::Variable {
                        name: name.to_owned(),
                        variable: variable.to_owned(),
                    })?;
            expanded.push_str(before);
            expanded.push_str(variable_value.trim());
            self.variables.push(variable.to_owned());
            rest = after;
        }
        expanded.push_str(rest);
        let mut value = HeaderValue::from_str(&expanded).map_err(|_| {
            problem("its value contains characters that are not allowed in headers")
        })?;
        value.set_sensitive(true);
        self.headers.append(header, value);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_validated() {
        for good in ["https://example.org/hook?key=1", "http://example.org:8080"] {
            assert!(Target::parse(good, false).is_ok(), "{good}");
        }
        for private in [
            "http://127.0.0.1/",
            "http://127.1/",
            "http://2130706433/",
            "http://0x7f000001/",
            "http://0177.0.0.1/",
            "http://[::1]/",
            "http://[::ffff:169.254.169.254]/",
            "http://10.0.0.1/",
        ] {
            let rejected = Target::parse(private, false);
            assert!(
                matches!(rejected, Err(TargetError::Private { .. })),
                "{private}: {rejected:?}"
            );
            assert!(Target::parse(private, true).is_ok(), "{private}");
        }
        for scheme in ["ftp://example.org/", "file:///etc/passwd", "unix:/x"] {
            let rejected = Target::parse(scheme, true);
            assert!(
                matches!(rejected, Err(TargetError::Scheme { .. })),
                "{scheme}"
            );
        }
        assert!(matches!(
            Target::parse("example.org/hook", false),
            Err(TargetError::NotAUrl { .. })
        ));
    }

    #[test]
    fn errors_and_debug_output_contain_no_secrets() {
        let rejected = Target::parse("https://user:hunter2@example.org/", false).unwrap_err();
        assert!(matches!(rejected, TargetError::Credentials { .. }));
        assert!(!rejected.to_string().contains("hunter2"), "{rejected}");
        assert!(rejected.to_string().contains("${VARIABLE}"), "{rejected}");
        let rejected = Target::parse("https://user:hunter2@exa mple.org/", false).unwrap_err();
        assert!(!rejected.to_string().contains("hunter2"), "{rejected}");
        let target = Target::parse("https://example.org/hook?key=hunter2", false).unwrap();
        assert_eq!(target.to_string(), "https://example.org/hook");
        assert!(!format!("{target:?}").contains("hunter2"));
        let environment = BTreeMap::from([("TOKEN".to_owned(), "hunter2\n".to_owned())]);
        let headers = Headers::parse(["Authorization: Bearer ${TOKEN}"], &environment).unwrap();
        assert_eq!(headers.headers["authorization"], "Bearer hunter2");
        assert_eq!(headers.variables, ["TOKEN"]);
        assert!(!format!("{headers:?}").contains("hunter2"));
    }

    #[test]
    fn headers_are_validated() {
        let none = BTreeMap::new();
        let rejected = |line: &str| Headers::parse([line], &none).unwrap_err().to_string();
        assert!(rejected("X-Key").contains("missing colon"));
        assert!(rejected("X Key: 1").contains("not a valid header name"));
        assert!(rejected("Host: a").contains("qo sets this header"));
        assert!(rejected("Qo-Attempt: 1").contains("qo sets this header"));
        assert!(rejected("X-Key: ${NOT_SET}").contains("NOT_SET, which is not set"));
        assert!(rejected("X-Key: ${NOT").contains("without }"));
        assert!(rejected("X-Key: a\nb").contains("not allowed"));
    }
}
