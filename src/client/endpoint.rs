//! The address of a server: the forms that users may write, and the URI that they mean.

use std::{fmt, str::FromStr};

use http::Uri;
use thiserror::Error;

use super::Credentials;

/// The address of `remuda serve` without a configuration.
pub const DEFAULT_ENDPOINT: &str = "http://127.0.0.1:50051";

/// URI of a server, and the credentials for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    uri: String,
    pub credentials: Credentials,
}

/// A text that is not the address of a server.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ParseEndpointError {
    #[error("it is empty; {ENDPOINT_FORMS}")]
    Empty,
    #[error("it names no port from 1 to 65535; {ENDPOINT_FORMS}")]
    NoPort,
    #[error("it is not an address; {ENDPOINT_FORMS}")]
    Malformed,
}

const ENDPOINT_FORMS: &str = "write host:port, http://host:port, https://host:port or unix:/path/to.sock";

impl Endpoint {
    #[must_use]
    pub fn as_uri(&self) -> &str {
        &self.uri
    }

    #[must_use]
    pub fn is_tls(&self) -> bool {
        self.uri.starts_with("https://")
    }

    fn new(uri: String) -> Self {
        Self { uri, credentials: Credentials::default() }
    }
}

impl FromStr for Endpoint {
    type Err = ParseEndpointError;

    fn from_str(text: &str) -> Result<Self, ParseEndpointError> {
        if text.is_empty() {
            return Err(ParseEndpointError::Empty);
        }
        if text.starts_with('/') {
            return Ok(Self::new(format!("unix:{text}")));
        }
        if let Some(path) = text.strip_prefix("unix:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            return if path.is_empty() {
                Err(ParseEndpointError::Malformed)
            } else {
                Ok(Self::new(format!("unix:{path}")))
            };
        }
        let (scheme, rest) = match text.strip_prefix("https://") {
            Some(rest) => ("https", rest),
            None => ("http", text.strip_prefix("http://").unwrap_or(text)),
        };
        let authority = rest.trim_end_matches('/');
        let uri: Uri = format!("{scheme}://{authority}").parse().map_err(|_| ParseEndpointError::Malformed)?;
        if uri.path() != "/" || uri.query().is_some() || uri.host().is_none_or(str::is_empty) {
            return Err(ParseEndpointError::Malformed);
        }
        uri.port_u16().map(|_| Self::new(format!("{scheme}://{authority}"))).ok_or(ParseEndpointError::NoPort)
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.uri)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(text: &str) -> Result<String, String> {
        text.parse().map(|endpoint: Endpoint| endpoint.to_string()).map_err(|error| error.to_string())
    }

    #[test]
    fn endpoints_may_be_written_in_several_ways() {
        let forms = [
            (DEFAULT_ENDPOINT, DEFAULT_ENDPOINT),
            ("localhost:50051", "http://localhost:50051"),
            ("http://pool.internal:1/", "http://pool.internal:1"),
            ("https://pool.internal:1", "https://pool.internal:1"),
            ("[::1]:50051", "http://[::1]:50051"),
            ("unix:/run/remuda.sock", "unix:/run/remuda.sock"),
            ("unix:///run/remuda.sock", "unix:/run/remuda.sock"),
            ("unix:remuda.sock", "unix:remuda.sock"),
            ("/run/remuda.sock", "unix:/run/remuda.sock"),
        ];
        for (text, meant) in forms {
            assert_eq!(endpoint(text).unwrap(), meant);
        }
    }

    #[test]
    fn wrong_endpoint_is_refused_with_the_reason() {
        assert!(endpoint("").unwrap_err().starts_with("it is empty; write host:port"));
        assert!(endpoint("localhost").unwrap_err().starts_with("it names no port"));
        assert!(endpoint("localhost:99999").unwrap_err().starts_with("it names no port"));
        for text in ["unix:", "ftp://localhost:1", "localhost:1/path", ":1", "a b:1"] {
            assert!(endpoint(text).unwrap_err().starts_with("it is not an address"), "{text}");
        }
    }
}
