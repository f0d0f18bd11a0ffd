//! How a client shows who it is, and how it knows the server.

use std::fmt;

use http::HeaderValue;
use tonic::{
    Request, Status,
    metadata::{Ascii, MetadataValue},
    service::Interceptor,
    transport::{Certificate, ClientTlsConfig, Identity},
};

/// Everything a client may need beside the address.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Credentials {
    /// Sent with every call.
    pub token: Option<String>,
    /// The authority that signed the server's certificate, in PEM; the system's own if absent.
    pub ca: Option<Vec<u8>>,
    /// The client's own certificate and key, in PEM.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
    /// The name in the server's certificate, if it is not the one in the address.
    pub server_name: Option<String>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Nothing of this belongs in a log.
        formatter.write_str("Credentials")
    }
}

impl Credentials {
    pub(super) fn tls(&self) -> ClientTlsConfig {
        let mut tls = ClientTlsConfig::new();
        tls = match &self.ca {
            Some(ca) => tls.ca_certificate(Certificate::from_pem(ca)),
            None => tls.with_native_roots(),
        };
        if let Some((certificate, key)) = &self.identity {
            tls = tls.identity(Identity::from_pem(certificate, key));
        }
        if let Some(name) = &self.server_name {
            tls = tls.domain_name(name);
        }
        tls
    }

    pub(super) fn bearer(&self) -> Bearer {
        // A token that no header can hold is none; the server says so.
        Bearer(self.token.as_ref().and_then(|token| format!("Bearer {token}").parse().ok()))
    }

    /// The same, as a header of a call that is made by hand.
    pub(super) fn bearer_header(&self) -> Option<HeaderValue> {
        let mut header: HeaderValue = format!("Bearer {}", self.token.as_ref()?).parse().ok()?;
        header.set_sensitive(true);
        Some(header)
    }
}

/// Adds the token to a call.
#[derive(Debug, Clone)]
pub(super) struct Bearer(Option<MetadataValue<Ascii>>);

impl Interceptor for Bearer {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(value) = &self.0 {
            let mut value = value.clone();
            value.set_sensitive(true);
            request.metadata_mut().insert("authorization", value);
        }
        Ok(request)
    }
}
