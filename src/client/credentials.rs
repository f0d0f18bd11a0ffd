//! Credentials of a client, and the certificates by which it knows the server.

use std::fmt;

use http::HeaderMap;
use tonic::{
    Request, Status,
    metadata::{Ascii, MetadataMap, MetadataValue},
    service::Interceptor,
    transport::{Certificate, ClientTlsConfig, Identity},
};

/// Everything that a client may need beside the address.
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
        // Secrets do not belong in a log.
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

    pub(super) fn bearer(&self) -> BearerToken {
        // A token that no header can hold is not sent; the server refuses the call.
        let header = self.token.as_ref().and_then(|token| format!("Bearer {token}").parse().ok());
        BearerToken(header.map(|mut header: MetadataValue<Ascii>| {
            header.set_sensitive(true);
            header
        }))
    }
}

/// Adds the token to each call.
#[derive(Debug, Clone)]
pub struct BearerToken(Option<MetadataValue<Ascii>>);

impl BearerToken {
    /// The headers of a call that does not go through the interceptor.
    pub(super) fn into_headers(self) -> HeaderMap {
        let mut metadata = MetadataMap::new();
        self.0.map(|header| metadata.insert("authorization", header));
        metadata.into_headers()
    }
}

impl Interceptor for BearerToken {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(header) = &self.0 {
            request.metadata_mut().insert("authorization", header.clone());
        }
        Ok(request)
    }
}
