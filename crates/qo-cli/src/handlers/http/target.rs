//! Where requests go, and what they carry: checked once, when the worker starts.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use thiserror::Error;
use url::{Host, Url};

use super::address::is_public;

/// Headers that the handler or the protocol sets itself.
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

/// Why a handler cannot send requests there.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TargetError {
    /// Not a URL.
    #[error("{text:?} is not a URL: {problem}; write it as https://host/path")]
    NotAUrl {
        /// What was given, without credentials.
        text: String,
        /// What is wrong with it.
        problem: String,
    },
    /// Another protocol.
    #[error("{scheme}: URLs are not supported; use http:// or https://")]
    Scheme {
        /// What was given.
        scheme: String,
    },
    /// A user or a password.
    #[error(
        "the URL for {host} holds credentials, which would end up in logs; take them out, and use --http-header 'Authorization: ...${{VARIABLE}}'"
    )]
    Credentials {
        /// The host of the URL.
        host: String,
    },
    /// An address that no request may go to.
    #[error(
        "{address} is not on the public internet; if that is meant, add --allow-private-addresses"
    )]
    Private {
        /// The address.
        address: IpAddr,
    },
    /// Not a header.
    #[error("{name:?} is not a header that can be sent: {problem}")]
    Header {
        /// The part before the colon.
        name: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A variable that is not set.
    #[error("the header {name} needs the environment variable {variable}, which is not set")]
    Variable {
        /// The header.
        name: String,
        /// The variable.
        variable: String,
    },
}

/// A URL that requests may go to.
#[derive(Clone, PartialEq, Eq)]
pub struct Target(Url);

impl Target {
    /// Checks a URL. An address in it is checked here, a name when it is resolved.
    pub fn parse(text: &str, allow_private: bool) -> Result<Self, TargetError> {
        let url = Url::parse(text.trim()).map_err(|error| TargetError::NotAUrl {
            // What is before an @ could be a password.
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
    /// Leaves out the query, which may hold a key.
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

/// Headers that every request carries, with the variables whose values are in them.
#[derive(Debug, Clone, Default)]
pub struct Headers {
    /// The headers; each is marked as secret, so that nothing shows its value.
    pub headers: HeaderMap,
    /// The variables that were put in.
    pub variables: Vec<String>,
}

impl Headers {
    /// Reads lines of the form `Name: value`. In a value, `${VARIABLE}` stands for a variable of the environment.
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
                problem: "there is no colon; write it as 'Name: value'".to_owned(),
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
            .map_err(|_| problem("it is not the name of a header"))?;
        if RESERVED.contains(&header.as_str()) || header.as_str().starts_with("qo-") {
            return Err(problem("qo sets it itself"));
        }
        let mut filled = String::new();
        let mut rest = value;
        while let Some((before, after)) = rest.split_once("${") {
            let (variable, after) = after
                .split_once('}')
                .ok_or_else(|| problem("its value has a ${ without a }"))?;
            let found = environment
                .get(variable)
                .ok_or_else(|| TargetError::Variable {
                    name: name.to_owned(),
                    variable: variable.to_owned(),
                })?;
            filled.push_str(before);
            filled.push_str(found.trim());
            self.variables.push(variable.to_owned());
            rest = after;
        }
        filled.push_str(rest);
        let mut value = HeaderValue::from_str(&filled)
            .map_err(|_| problem("its value has characters that a header cannot have"))?;
        value.set_sensitive(true);
        self.headers.append(header, value);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_checked() {
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
            let refused = Target::parse(private, false);
            assert!(
                matches!(refused, Err(TargetError::Private { .. })),
                "{private}: {refused:?}"
            );
            assert!(Target::parse(private, true).is_ok(), "{private}");
        }
        for scheme in ["ftp://example.org/", "file:///etc/passwd", "unix:/x"] {
            let refused = Target::parse(scheme, true);
            assert!(
                matches!(refused, Err(TargetError::Scheme { .. })),
                "{scheme}"
            );
        }
        assert!(matches!(
            Target::parse("example.org/hook", false),
            Err(TargetError::NotAUrl { .. })
        ));
    }

    #[test]
    fn no_error_and_no_log_tells_a_secret() {
        let refused = Target::parse("https://user:hunter2@example.org/", false).unwrap_err();
        assert!(matches!(refused, TargetError::Credentials { .. }));
        assert!(!refused.to_string().contains("hunter2"), "{refused}");
        assert!(refused.to_string().contains("${VARIABLE}"), "{refused}");
        let refused = Target::parse("https://user:hunter2@exa mple.org/", false).unwrap_err();
        assert!(!refused.to_string().contains("hunter2"), "{refused}");
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
    fn headers_are_checked() {
        let none = BTreeMap::new();
        let refused = |line: &str| Headers::parse([line], &none).unwrap_err().to_string();
        assert!(refused("X-Key").contains("no colon"));
        assert!(refused("X Key: 1").contains("not the name"));
        assert!(refused("Host: a").contains("qo sets it itself"));
        assert!(refused("Qo-Attempt: 1").contains("qo sets it itself"));
        assert!(refused("X-Key: ${NOT_SET}").contains("NOT_SET, which is not set"));
        assert!(refused("X-Key: ${NOT").contains("without a }"));
        assert!(refused("X-Key: a\nb").contains("cannot have"));
    }
}
