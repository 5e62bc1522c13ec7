//! The endpoint of a cloud store.

use super::error::OpenError;

/// The URL of a server: `http` or `https`, a host, an optional port and an optional path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Endpoint {
    /// The URL as given, without a trailing slash.
    pub(crate) url: String,
    /// Host and port, as in a request.
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
        let expected =
            "expected an endpoint such as https://s3.example.org or http://127.0.0.1:9000";
        let uri: http::Uri = text.parse().map_err(|_| bad(expected))?;
        let authority = uri.authority().ok_or_else(|| bad(expected))?;
        if authority.as_str().contains('@') {
            return Err(bad(
                "it must not contain credentials; set them in the environment or in a profile",
            ));
        }
        let is_http = match uri.scheme_str() {
            Some("http") => true,
            Some("https") => false,
            _ => return Err(bad(expected)),
        };
        if uri.query().is_some() || text.contains('#') || url::Url::parse(text).is_err() {
            return Err(bad(expected));
        }
        Ok(Self {
            url: text.trim_end_matches('/').to_owned(),
            authority: authority.as_str().to_owned(),
            is_http,
        })
    }

    /// Scheme, host and port. Safe to print.
    pub(crate) fn origin(&self) -> String {
        let scheme = if self.is_http { "http" } else { "https" };
        format!("{scheme}://{}", self.authority)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
