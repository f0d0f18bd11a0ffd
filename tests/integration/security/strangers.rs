//! Clients without a valid certificate or without TLS reach no method and no path.

use std::{sync::Arc, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::{
    TlsConnector,
    rustls::{
        ClientConfig, RootCertStore,
        crypto::ring,
        pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
    },
};
use tonic::{Code, transport::Channel};

use super::{
    HTTP_PATHS, all_methods, call,
    tls::{HEALTH, Setup, start},
};
use crate::harness::{Authority, DEADLINE, Identity};

impl Setup {
    /// The answer of the HTTP side to a client with this certificate; empty if there is none.
    async fn get_with(&self, identity: Option<&Identity>, path: &str) -> String {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.authority.pem().as_bytes()).unwrap()).unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let config = match identity {
            None => config.with_no_client_auth(),
            Some(identity) => {
                let cert = CertificateDer::from_pem_slice(identity.cert.as_bytes()).unwrap();
                let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).unwrap();
                config.with_client_auth_cert(vec![cert], key).unwrap()
            }
        };
        let asking = async {
            let tcp = TcpStream::connect(&self.server.http).await.unwrap();
            let name = ServerName::try_from("localhost").unwrap();
            let Ok(mut stream) = TlsConnector::from(Arc::new(config)).connect(name, tcp).await else {
                return String::new();
            };
            let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
            let mut answer = Vec::new();
            // A refusal may come before all is sent, and leaves what was received.
            let _ = stream.write_all(request.as_bytes()).await;
            let _ = stream.read_to_end(&mut answer).await;
            String::from_utf8(answer).unwrap()
        };
        timeout(DEADLINE, asking).await.expect("an answer or a refusal")
    }

    /// Number of calls that the server has counted, of any outcome.
    async fn calls(&self, good: &Identity) -> u32 {
        let page = self.get_with(Some(good), "/metrics").await;
        let lines = page.lines().filter(|line| line.starts_with("remuda_grpc_requests_total{"));
        lines.map(|line| line.rsplit(' ').next().unwrap().parse::<u32>().unwrap()).sum()
    }

    async fn call_in_plain_text(&self, method: &str) -> Code {
        let endpoint = Channel::from_shared(format!("http://{}", self.server.grpc)).unwrap();
        match endpoint.connect_timeout(Duration::from_secs(5)).connect().await {
            Ok(channel) => call(&channel, method, None).await,
            Err(_) => Code::Unavailable,
        }
    }
}

#[tokio::test]
async fn methods_are_closed_without_a_valid_certificate_or_tls() {
    let setup = start(true);
    let good = setup.authority.issue("client");
    assert_eq!(setup.call_with(&setup.authority, Some(&good), HEALTH).await, Ok(Code::Ok));
    let strangers = [None, Some(setup.authority.issue_expired("client")), Some(Authority::new().issue("client"))];
    for method in all_methods() {
        for (number, stranger) in strangers.iter().enumerate() {
            let called = setup.call_with(&setup.authority, stranger.as_ref(), &method).await;
            assert!(called.is_err(), "{method}, stranger {number}: {called:?}");
        }
        assert_ne!(setup.call_in_plain_text(&method).await, Code::Ok, "{method} in plain text");
    }
    assert_eq!(setup.calls(&good).await, 1, "no call of a stranger was even looked at");
}

#[tokio::test]
async fn paths_are_closed_without_a_valid_certificate_or_tls() {
    let setup = start(true);
    let good = setup.authority.issue("client");
    let strangers = [None, Some(setup.authority.issue_expired("client")), Some(Authority::new().issue("client"))];
    for path in HTTP_PATHS {
        for (number, stranger) in strangers.iter().enumerate() {
            assert_eq!(setup.get_with(stranger.as_ref(), path).await, "", "{path}, stranger {number}");
        }
        let plain = setup.server.try_get(path, &[]);
        assert!(!plain.contains("HTTP/1.1"), "{path} in plain text: {plain}");
        let answer = setup.get_with(Some(&good), path).await;
        let status = if path == "/other" { "404" } else { "200" };
        assert!(path == "/readyz" || answer.starts_with(&format!("HTTP/1.1 {status}")), "{path}: {answer}");
        assert!(answer.starts_with("HTTP/1.1 "), "{path}: {answer}");
    }
}

#[tokio::test]
async fn plain_text_is_refused_on_every_method_and_path_with_tls_alone() {
    let setup = start(false);
    for method in all_methods() {
        assert_ne!(setup.call_in_plain_text(&method).await, Code::Ok, "{method}");
    }
    for path in HTTP_PATHS {
        let answer = setup.server.try_get(path, &[]);
        assert!(!answer.contains("HTTP/1.1"), "{path}: {answer}");
        assert!(setup.get_with(None, path).await.starts_with("HTTP/1.1 "), "{path}");
    }
}
