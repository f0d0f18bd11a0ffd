//! TLS on the way in: certificates from files, client certificates if asked for, and new ones without a restart.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::SystemTime,
};

use parking_lot::RwLock;
use thiserror::Error;
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        RootCertStore, ServerConfig,
        crypto::{CryptoProvider, ring},
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
        server::{NoServerSessionStorage, WebPkiClientVerifier},
    },
};

use crate::config::TlsFiles;

#[derive(Debug, Error)]
pub enum TlsError {
    #[error("cannot read {}: {error} ({key})", .path.display())]
    Unreadable { key: &'static str, path: PathBuf, error: io::Error },
    #[error("{} holds no {what} in PEM ({key})", .path.display())]
    Nothing { key: &'static str, path: PathBuf, what: &'static str },
    #[error("cannot use the certificate and key: {0} (server.tls_cert, server.tls_key)")]
    Unusable(String),
    #[error("cannot use the authorities for client certificates: {0} (server.tls_client_ca)")]
    BadAuthorities(String),
}

/// What protocol is spoken inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inside {
    Http2,
    Http1,
}

/// The certificates in force. Connections that are open keep those they began with.
#[derive(Debug)]
pub struct Tls {
    files: TlsFiles,
    current: RwLock<Loaded>,
}

#[derive(Debug)]
struct Loaded {
    http2: Arc<ServerConfig>,
    http1: Arc<ServerConfig>,
    stamps: Vec<Option<SystemTime>>,
}

impl Tls {
    pub fn load(files: TlsFiles) -> Result<Self, TlsError> {
        let loaded = load(&files)?;
        Ok(Self { files, current: RwLock::new(loaded) })
    }

    /// Reads the files again. If they cannot be used, what was in force stays in force.
    pub fn reload(&self) -> Result<(), TlsError> {
        let loaded = load(&self.files);
        if loaded.is_err() {
            // Told once, and not each time someone looks.
            self.current.write().stamps = stamps(&self.files);
        }
        *self.current.write() = loaded?;
        Ok(())
    }

    /// Whether the files were changed since they were read.
    #[must_use]
    pub fn is_stale(&self) -> bool {
        stamps(&self.files) != self.current.read().stamps
    }

    /// Takes the next connection with the certificates that are in force now.
    #[must_use]
    pub fn acceptor(&self, inside: Inside) -> TlsAcceptor {
        let current = self.current.read();
        TlsAcceptor::from(match inside {
            Inside::Http2 => current.http2.clone(),
            Inside::Http1 => current.http1.clone(),
        })
    }
}

fn load(files: &TlsFiles) -> Result<Loaded, TlsError> {
    // Before the files are read: a change while they are being read is then seen later.
    let stamps = stamps(files);
    let certs = certificates("server.tls_cert", &files.cert)?;
    let key = key(&files.key)?;
    let authorities = files.client_ca.as_deref().map(|path| certificates("server.tls_client_ca", path)).transpose()?;
    let provider = Arc::new(ring::default_provider());
    let config = |inside| configure(&provider, certs.clone(), key.clone_key(), authorities.clone(), inside);
    Ok(Loaded { http2: config(Inside::Http2)?, http1: config(Inside::Http1)?, stamps })
}

fn configure(
    provider: &Arc<CryptoProvider>,
    certs: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    authorities: Option<Vec<CertificateDer<'static>>>,
    inside: Inside,
) -> Result<Arc<ServerConfig>, TlsError> {
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsError::Unusable(error.to_string()))?;
    let asks_for_certificates = authorities.is_some();
    let builder = match authorities {
        None => builder.with_no_client_auth(),
        Some(authorities) => {
            let mut roots = RootCertStore::empty();
            for authority in authorities {
                roots.add(authority).map_err(|error| TlsError::BadAuthorities(error.to_string()))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone())
                .build()
                .map_err(|error| TlsError::BadAuthorities(error.to_string()))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config = builder.with_single_cert(certs, key).map_err(|error| TlsError::Unusable(error.to_string()))?;
    config.alpn_protocols = vec![match inside {
        Inside::Http2 => b"h2".to_vec(),
        Inside::Http1 => b"http/1.1".to_vec(),
    }];
    if asks_for_certificates {
        // Who resumes a session does not show its certificate again, which may have expired since.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
    }
    Ok(Arc::new(config))
}

fn certificates(key: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let pem = contents(key, path)?;
    let found: Vec<_> = CertificateDer::pem_slice_iter(&pem).flatten().collect();
    if found.is_empty() {
        return Err(TlsError::Nothing { key, path: path.to_owned(), what: "certificate" });
    }
    Ok(found)
}

fn key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let pem = contents("server.tls_key", path)?;
    let nothing = |_| TlsError::Nothing { key: "server.tls_key", path: path.to_owned(), what: "private key" };
    PrivateKeyDer::from_pem_slice(&pem).map_err(nothing)
}

fn contents(key: &'static str, path: &Path) -> Result<Vec<u8>, TlsError> {
    fs::read(path).map_err(|error| TlsError::Unreadable { key, path: path.to_owned(), error })
}

fn stamps(files: &TlsFiles) -> Vec<Option<SystemTime>> {
    let stamp = |path: &PathBuf| fs::metadata(path).and_then(|metadata| metadata.modified()).ok();
    [Some(&files.cert), Some(&files.key), files.client_ca.as_ref()].into_iter().flatten().map(stamp).collect()
}
