//! Where a server is: what people may write, and the URI that it means.

use std::{fmt, str::FromStr};

use http::Uri;
use thiserror::Error;

/// Where `remuda serve` listens unless told otherwise.
pub const DEFAULT_ENDPOINT: &str = "http://127.0.0.1:50051";

/// Where a server is, in the form of a URI.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint(String);

/// What cannot be where a server is.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum BadEndpoint {
    #[error("it is empty; {FORMS}")]
    Empty,
    #[error("it names no port from 1 to 65535; {FORMS}")]
    NoPort,
    #[error("it is not an address; {FORMS}")]
    Malformed,
    #[error("TLS is not supported by this version of remuda; use http://")]
    Tls,
}

const FORMS: &str = "write host:port, http://host:port or unix:/path/to.sock";

impl Endpoint {
    #[must_use]
    pub fn as_uri(&self) -> &str {
        &self.0
    }
}

impl FromStr for Endpoint {
    type Err = BadEndpoint;

    fn from_str(text: &str) -> Result<Self, BadEndpoint> {
        if text.is_empty() {
            return Err(BadEndpoint::Empty);
        }
        if text.starts_with("https://") {
            return Err(BadEndpoint::Tls);
        }
        if text.starts_with('/') {
            return Ok(Self(format!("unix:{text}")));
        }
        if let Some(path) = text.strip_prefix("unix:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            return if path.is_empty() { Err(BadEndpoint::Malformed) } else { Ok(Self(format!("unix:{path}"))) };
        }
        let authority = text.strip_prefix("http://").unwrap_or(text).trim_end_matches('/');
        let uri: Uri = format!("http://{authority}").parse().map_err(|_| BadEndpoint::Malformed)?;
        if uri.path() != "/" || uri.query().is_some() || uri.host().is_none_or(str::is_empty) {
            return Err(BadEndpoint::Malformed);
        }
        uri.port_u16().map(|_| Self(format!("http://{authority}"))).ok_or(BadEndpoint::NoPort)
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
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
    fn what_is_no_endpoint_is_told_why() {
        assert!(endpoint("").unwrap_err().starts_with("it is empty; write host:port"));
        assert!(endpoint("localhost").unwrap_err().starts_with("it names no port"));
        assert!(endpoint("localhost:99999").unwrap_err().starts_with("it names no port"));
        assert!(endpoint("https://localhost:1").unwrap_err().starts_with("TLS is not supported"));
        for text in ["unix:", "ftp://localhost:1", "localhost:1/path", ":1", "a b:1"] {
            assert!(endpoint(text).unwrap_err().starts_with("it is not an address"), "{text}");
        }
    }
}
