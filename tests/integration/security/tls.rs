//! TLS: who does not speak it, or cannot show what is asked for, is refused; certificates are renewed without a restart.

use std::{
    io::{Read, Write},
    net::TcpStream,
    sync::Arc,
    time::Duration,
};

use nix::sys::signal::Signal;
use tokio_rustls::rustls::{
    self, ClientConfig, ClientConnection, HandshakeKind, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use tonic::{
    Code,
    transport::{Certificate, Channel, ClientTlsConfig},
};

use super::call;
use crate::harness::{Authority, DEADLINE, Identity, Server, eventually, fake_kind, output_of, remuda};

pub(super) struct Setup {
    pub server: Server,
    pub dir: tempfile::TempDir,
    pub authority: Authority,
}

pub(super) fn start(client_certificates: bool) -> Setup {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let (cert, key) = authority.issue("localhost").write(dir.path(), "server");
    let ca = dir.path().join("ca.crt");
    std::fs::write(&ca, authority.pem()).unwrap();
    let client_ca = if client_certificates { format!("tls_client_ca = \"{}\"\n", ca.display()) } else { String::new() };
    let config = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\nhttp = \"127.0.0.1:0\"\ntls_cert = \"{}\"\ntls_key = \"{}\"\n{client_ca}{}",
        cert.display(),
        key.display(),
        fake_kind("k", &[], "min = 1")
    );
    Setup { server: Server::start(&config), dir, authority }
}

pub(super) const HEALTH: &str = "/remuda.v1.WorkerPool/Health";

impl Setup {
    /// Connects with what it is given and asks for the health.
    async fn try_with(&self, authority: &Authority, identity: Option<&Identity>) -> Result<Code, String> {
        self.call_with(authority, identity, HEALTH).await
    }

    /// Connects with what it is given and calls a method.
    pub(super) async fn call_with(
        &self,
        authority: &Authority,
        identity: Option<&Identity>,
        method: &str,
    ) -> Result<Code, String> {
        let mut tls =
            ClientTlsConfig::new().ca_certificate(Certificate::from_pem(authority.pem())).domain_name("localhost");
        if let Some(identity) = identity {
            tls = tls.identity(tonic::transport::Identity::from_pem(&identity.cert, &identity.key));
        }
        let endpoint = Channel::from_shared(format!("https://{}", self.server.grpc)).unwrap().tls_config(tls);
        let endpoint = endpoint.unwrap().connect_timeout(Duration::from_secs(5));
        let channel = endpoint.connect().await.map_err(|error| format!("{error:?}"))?;
        let code = call(&channel, method, None).await;
        // With TLS 1.3 a client learns that its certificate was refused only with its first call.
        if code == Code::Ok { Ok(code) } else { Err(format!("{code:?}")) }
    }
}

#[tokio::test]
async fn tls_serves_only_clients_that_speak_it() {
    let setup = start(false);
    assert_eq!(setup.try_with(&setup.authority, None).await, Ok(Code::Ok));
    let stranger = Authority::new();
    assert!(setup.try_with(&stranger, None).await.is_err(), "a server of another authority must not be trusted");
    let plain = Channel::from_shared(format!("http://{}", setup.server.grpc)).unwrap();
    let plain = plain.connect_timeout(Duration::from_secs(5)).connect().await;
    if let Ok(channel) = plain {
        assert_ne!(call(&channel, HEALTH, None).await, Code::Ok, "plain text must not be served");
    }
    // The HTTP side speaks TLS too: a plain request gets no answer of HTTP.
    let answer = setup.server.try_get("/metrics", &[]);
    assert!(!answer.contains("HTTP/1.1 200"), "{answer}");
    assert_eq!(setup.server.stop_cleanly().code(), Some(0));
}

#[tokio::test]
async fn client_certificates_must_be_valid() {
    let setup = start(true);
    let good = setup.authority.issue("client");
    assert_eq!(setup.try_with(&setup.authority, Some(&good)).await, Ok(Code::Ok));
    assert!(setup.try_with(&setup.authority, None).await.is_err(), "no certificate");
    let expired = setup.authority.issue_expired("client");
    assert!(setup.try_with(&setup.authority, Some(&expired)).await.is_err(), "an expired one");
    let foreign = Authority::new().issue("client");
    assert!(setup.try_with(&setup.authority, Some(&foreign)).await.is_err(), "one of another authority");
    assert_eq!(setup.try_with(&setup.authority, Some(&good)).await, Ok(Code::Ok), "the good one still works");
}

#[tokio::test]
async fn new_certificate_is_used_without_a_restart() {
    let setup = start(false);
    let successor = Authority::new();
    assert!(setup.try_with(&successor, None).await.is_err());
    successor.issue("localhost").write(setup.dir.path(), "server");
    setup.server.signal(Signal::SIGHUP);
    eventually("the certificates to be reloaded", || {
        setup.server.log().iter().any(|line| line.contains("certificates reloaded")).then_some(())
    });
    assert_eq!(setup.try_with(&successor, None).await, Ok(Code::Ok));
    std::fs::write(setup.dir.path().join("server.crt"), "broken").unwrap();
    setup.server.signal(Signal::SIGHUP);
    eventually("the broken file to be told", || {
        setup
            .server
            .log()
            .iter()
            .any(|line| line.contains("certificate reload failed, keeping the current ones"))
            .then_some(())
    });
    assert_eq!(setup.try_with(&successor, None).await, Ok(Code::Ok), "what was in force is still in force");
}

/// Connects as a client that resumes its sessions where it can, hears something, and tells how they shook hands.
fn shake_hands(server: &Server, config: &Arc<ClientConfig>) -> HandshakeKind {
    let mut socket = TcpStream::connect(&server.grpc).unwrap();
    socket.set_read_timeout(Some(DEADLINE)).unwrap();
    let mut connection = ClientConnection::new(config.clone(), "localhost".try_into().unwrap()).unwrap();
    let mut stream = rustls::Stream::new(&mut connection, &mut socket);
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").unwrap();
    stream.read_exact(&mut [0]).unwrap();
    connection.handshake_kind().unwrap()
}

#[test]
fn client_certificate_is_requested_at_every_handshake() {
    for (asked_for, again) in [(false, HandshakeKind::Resumed), (true, HandshakeKind::Full)] {
        let setup = start(asked_for);
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(setup.authority.pem().as_bytes()).unwrap()).unwrap();
        let mine = setup.authority.issue("client");
        let cert = CertificateDer::from_pem_slice(mine.cert.as_bytes()).unwrap();
        let key = PrivateKeyDer::from_pem_slice(mine.key.as_bytes()).unwrap();
        let client = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let client = client.with_safe_default_protocol_versions().unwrap().with_root_certificates(roots);
        let mut client = client.with_client_auth_cert(vec![cert], key).unwrap();
        client.alpn_protocols = vec![b"h2".to_vec()];
        let client = Arc::new(client);
        assert_eq!(shake_hands(&setup.server, &client), HandshakeKind::Full);
        assert_eq!(shake_hands(&setup.server, &client), again, "certificates are asked for: {asked_for}");
    }
}

#[test]
fn command_line_says_what_is_wrong_about_tls() {
    let setup = start(true);
    let ca = setup.dir.path().join("ca.crt");
    let stranger = setup.dir.path().join("stranger.crt");
    std::fs::write(&stranger, Authority::new().pem()).unwrap();
    let plain = Server::start(&fake_kind("k", &[], "min = 0"));
    let health = |endpoint: String, authority: &std::path::Path| {
        let mut command = remuda();
        command.arg("--endpoint").arg(endpoint).args(["--tls-name", "localhost", "--tls-ca"]).arg(authority);
        output_of(&command.arg("health").output().unwrap())
    };
    for (endpoint, authority, advice) in [
        (format!("http://{}", setup.server.grpc), &ca, "use https://"),
        (format!("https://{}", plain.grpc), &ca, "use http://"),
        (format!("https://{}", setup.server.grpc), &stranger, "--tls-ca"),
        (format!("https://{}", setup.server.grpc), &ca, "--tls-cert and --tls-key"),
    ] {
        let (code, _, stderr) = health(endpoint, authority);
        assert_eq!(code, 5, "{stderr}");
        assert!(stderr.contains(advice) && !stderr.contains("is it running"), "{advice:?} is not in {stderr}");
    }
}

#[tokio::test]
async fn command_line_speaks_tls_and_shows_its_certificate() {
    let setup = start(true);
    let (cert, key) = setup.authority.issue("client").write(setup.dir.path(), "client");
    let ca = setup.dir.path().join("ca.crt");
    let run = |with_certificate: bool| {
        let mut command = remuda();
        command.args(["--endpoint", &format!("https://{}", setup.server.grpc), "--tls-name", "localhost"]);
        command.arg("--tls-ca").arg(&ca);
        if with_certificate {
            command.arg("--tls-cert").arg(&cert).arg("--tls-key").arg(&key);
        }
        output_of(&command.args(["run", "1"]).output().unwrap())
    };
    let (code, stdout, stderr) = run(true);
    assert!(code == 0 && stdout.ends_with("{\"echo\": 1}\n"), "{stdout}{stderr}");
    let (code, _, stderr) = run(false);
    assert!(code != 0 && stderr.contains(&setup.server.grpc), "{stderr}");
}
