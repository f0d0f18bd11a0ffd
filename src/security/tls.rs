//! TLS certificates of the server: read from files, reloaded without a restart, with client certificates if required.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use thiserror::Error;
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        Error as RustlsError, RootCertStore, ServerConfig,
        crypto::{CryptoProvider, ring},
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
        server::{NoServerSessionStorage, WebPkiClientVerifier, danger::ClientCertVerifier},
    },
};

use crate::config::TlsFiles;

use super::reloadable::Reloadable;

#[derive(Debug, Error)]
pub enum TlsError {
    #[error("cannot read {}: {error} ({key})", .path.display())]
    Unreadable { key: &'static str, path: PathBuf, error: io::Error },
    #[error("{} holds no {content} in PEM ({key})", .path.display())]
    Empty { key: &'static str, path: PathBuf, content: &'static str },
    #[error("cannot use the certificate and key: {0} (server.tls_cert, server.tls_key)")]
    InvalidCertificate(String),
    #[error("cannot use the authorities for client certificates: {0} (server.tls_client_ca)")]
    InvalidAuthorities(String),
}

/// Protocol inside TLS, as the handshake negotiates it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Alpn {
    Http2,
    Http1,
}

/// The current certificates. Open connections keep those of their handshake.
#[derive(Debug)]
pub struct Tls {
    files: TlsFiles,
    current: Reloadable<TlsConfigs>,
}

#[derive(Debug)]
struct TlsConfigs {
    http2: Arc<ServerConfig>,
    http1: Arc<ServerConfig>,
}

impl Tls {
    pub fn load(files: TlsFiles) -> Result<Self, TlsError> {
        let paths = [&files.cert, &files.key].into_iter().chain(&files.client_ca).cloned().collect();
        let current = Reloadable::load(paths, || read(&files))?;
        Ok(Self { files, current })
    }

    /// Reads the files again. If they cannot be used, the current certificates stay.
    pub fn reload(&self) -> Result<(), TlsError> {
        self.current.reload(|| read(&self.files))
    }

    /// True if a file has changed since it was read.
    #[must_use]
    pub fn is_stale(&self) -> bool {
        self.current.is_stale()
    }

    /// Accepts a connection with the current certificates.
    #[must_use]
    pub fn acceptor(&self, alpn: Alpn) -> TlsAcceptor {
        let current = self.current.get();
        TlsAcceptor::from(match alpn {
            Alpn::Http2 => current.http2.clone(),
            Alpn::Http1 => current.http1.clone(),
        })
    }
}

fn read(files: &TlsFiles) -> Result<TlsConfigs, TlsError> {
    let certs = certificates("server.tls_cert", &files.cert)?;
    let key = private_key(&files.key)?;
    let authorities = files.client_ca.as_deref().map(|path| certificates("server.tls_client_ca", path)).transpose()?;
    let mut http2 = configure(certs, key, authorities)?;
    let mut http1 = http2.clone();
    http2.alpn_protocols = vec![b"h2".to_vec()];
    http1.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsConfigs { http2: Arc::new(http2), http1: Arc::new(http1) })
}

fn configure(
    certs: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    authorities: Option<Vec<CertificateDer<'static>>>,
) -> Result<ServerConfig, TlsError> {
    let invalid = |error: RustlsError| TlsError::InvalidCertificate(error.to_string());
    let provider = Arc::new(ring::default_provider());
    let builder =
        ServerConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions().map_err(invalid)?;
    let Some(authorities) = authorities else {
        return builder.with_no_client_auth().with_single_cert(certs, key).map_err(invalid);
    };
    let verifier = client_verifier(authorities, provider)?;
    let mut config = builder.with_client_cert_verifier(verifier).with_single_cert(certs, key).map_err(invalid)?;
    // A resumed session does not present its certificate again, which may have expired since.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}

fn client_verifier(
    authorities: Vec<CertificateDer<'static>>,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let mut roots = RootCertStore::empty();
    for authority in authorities {
        roots.add(authority).map_err(|error| TlsError::InvalidAuthorities(error.to_string()))?;
    }
    WebPkiClientVerifier::builder_with_provider(roots.into(), provider)
        .build()
        .map_err(|error| TlsError::InvalidAuthorities(error.to_string()))
}

fn certificates(key: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(&read_file(key, path)?).flatten().collect();
    if certificates.is_empty() {
        return Err(TlsError::Empty { key, path: path.to_owned(), content: "certificate" });
    }
    Ok(certificates)
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let key = "server.tls_key";
    PrivateKeyDer::from_pem_slice(&read_file(key, path)?).map_err(|_| TlsError::Empty {
        key,
        path: path.to_owned(),
        content: "private key",
    })
}

fn read_file(key: &'static str, path: &Path) -> Result<Vec<u8>, TlsError> {
    fs::read(path).map_err(|error| TlsError::Unreadable { key, path: path.to_owned(), error })
}
