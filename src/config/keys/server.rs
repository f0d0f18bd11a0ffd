//! Keys of `[server]`: the gRPC and HTTP endpoints, their protection, and their limits.

use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

use super::super::format::{List, Optional};
use super::super::numbers::{
    ANY_TIME, Boolean, Fraction, Integer, KIB, MAX_LIVE, MESSAGE_BYTES, MIB, Or, SOME_TIME, Size, Time,
};
use super::super::reader::SectionReader;
use super::super::schema::keys;
use super::super::strings::{Choice, FilePath, HttpAddress, Listen, ListenAddress, Text, http_path, url, words};

keys! {
    /// The gRPC and HTTP endpoints.
    pub struct ServerConfig, ServerSettings {
        /// Address of the gRPC endpoint: an IP address and port, or the path of a Unix socket, like
        /// "/run/remuda.sock". Only this machine by default, because anybody who reaches the port can run queries;
        /// a container needs "0.0.0.0:50051".
        listen: Listen = ListenAddress, Default("127.0.0.1:50051"), NeedsRestart;
        /// Address of /metrics, /livez and /readyz; "off" for none. A port of its own, so that it can be open to the
        /// monitoring while the queries' port is not.
        http: Option<SocketAddr> = Or("off", HttpAddress), Default("127.0.0.1:9090"), NeedsRestart;
        /// The server's certificate in PEM, with its intermediate certificates, for TLS on both addresses; needs
        /// tls_key. A relative path is taken from this file's directory. When the file changes, new connections get
        /// the new certificate within seconds, without a restart.
        tls_cert: Option<PathBuf> = Optional(FilePath), Unset("/etc/remuda/tls.crt"), NeedsRestart;
        /// The private key of that certificate in PEM. Keep it readable for the server's user only; workers must not
        /// be able to read it either (workers_may_read_secrets).
        tls_key: Option<PathBuf> = Optional(FilePath), Unset("/etc/remuda/tls.key"), NeedsRestart;
        /// Certificate authorities in PEM: clients must then present a certificate that one of them has signed. Needs
        /// tls_cert and tls_key. With tokens too, a client needs both.
        tls_client_ca: Option<PathBuf> = Optional(FilePath), Unset("/etc/remuda/clients.crt"), NeedsRestart;
        /// A file with the tokens that clients must send (authorization: Bearer ...), one on each line: a name, its
        /// roles, the token of at least 16 characters. The roles are submit (run queries and read their results),
        /// read (look at everything) and admin (everything), separated by commas. When the file changes, the new
        /// tokens apply within seconds. Health checks, probes and scrapes need to know of tokens and TLS too: see
        /// "With TLS and tokens" in docs/deploy.md.
        tokens: Option<PathBuf> = Optional(FilePath), Unset("/etc/remuda/tokens"), NeedsRestart;
        /// Allows workers to have access to tls_key and tokens. False by default: then the server does not start, nor
        /// accept a kind, if the kind's workers could read or replace these files. They cannot if they have a
        /// user of their own, or are confined by Landlock (landlock_read). True if you trust every program that
        /// workers run, and everything that it may be made to do.
        workers_may_read_secrets: bool = Boolean, Default(false), NeedsRestart;
        /// Allows listen and http to be reachable from other machines without the protection of TLS or tokens. False by
        /// default, because anybody who reaches the port can run queries; true if the network itself is closed, like
        /// that of a pod with a network policy.
        allow_insecure: bool = Boolean, Default(false), NeedsRestart;
        /// Uses TLS, if it is configured, on http too. False if the clients that scrape and probe do not speak TLS,
        /// or have no certificate to present, and the address is safe by other means.
        http_tls: bool = Boolean, Default(true), NeedsRestart;
        /// Paths of http that need no token although there are tokens, like ["/livez", "/readyz"] for an
        /// orchestrator whose probes cannot send one. None by default.
        http_open_paths: Vec<String> = List(Text(http_path)), Default([]), NeedsRestart;
        /// The OpenTelemetry collector that gets a span for each call, query and attempt, over OTLP with gRPC; with
        /// https:// it must present a certificate that this machine trusts. No spans are made unless it is set. A
        /// collector that is slow or gone costs spans, never queries.
        otlp_endpoint: Option<String> = Optional(Text(url)), Unset("http://127.0.0.1:4317"), NeedsRestart;
        /// The share of traces to export, from 0.0 to 1.0, of those that begin here. If the caller has sent a
        /// traceparent, its own decision applies.
        otlp_sample: f64 = Fraction, Default(1.0), NeedsRestart;
        /// The largest gRPC message that a client may send, and so the largest payload. 4MiB is the usual limit of
        /// gRPC; a worker's answers are limited by its kind's max_line_bytes.
        max_message_bytes: u64 = Size(MESSAGE_BYTES), Default("4MiB"), NeedsRestart;
        /// The most metadata (headers) of one call. Tokens and tracing fit well; it bounds the cost of a call before
        /// the call is looked at.
        max_metadata_bytes: u64 = Size(KIB..=16 * MIB), Default("16KiB"), NeedsRestart;
        /// Connections open at once. At the limit, one that has not made an accepted call yet is closed for the next,
        /// or else the one that has had no call for the longest time; if each has a call, the next one waits. A client
        /// needs one connection for all of its calls, so this is many clients. Each takes a file descriptor: raise
        /// the limit of open files along with it.
        max_connections: NonZeroUsize = Integer(1..=MAX_LIVE), Default(1024), NeedsRestart;
        /// Connections open at once on the port of /metrics; the oldest is closed for the next. Monitoring and probes
        /// need a handful; the limit keeps anybody else who finds the port from taking all file descriptors.
        max_http_connections: NonZeroUsize = Integer(1..=MAX_LIVE), Default(128), NeedsRestart;
        /// Calls open at once on one connection. Each reader of results holds one for as long as its query runs, so
        /// the customary 100 would soon be used up.
        max_concurrent_streams: NonZeroU32 = Integer(1..=MAX_LIVE), Default(1024), NeedsRestart;
        /// Time that a request may take to arrive, from its headers to its last byte; a later one is refused with
        /// DEADLINE_EXCEEDED. Enough for the largest message even on a slow line, while a client that sends a byte now
        /// and then does not hold a call open. It does not limit the time that a query runs. In reflection, where a
        /// call has many requests, it is the time from one to the next.
        request_timeout: Duration = Time(SOME_TIME), Default("30s"), NeedsRestart;
        /// Interval of the pings on a silent connection. Shorter than the minute or more after which load balancers
        /// commonly drop silent connections.
        keepalive_interval: Duration = Time(SOME_TIME), Default("30s"), NeedsRestart;
        /// Time that the answer to a ping may take before the connection counts as lost. Long enough for a lost packet
        /// to be sent again.
        keepalive_timeout: Duration = Time(SOME_TIME), Default("10s"), NeedsRestart;
        /// Age at which a connection is told to send no more calls (GOAWAY), and its client opens another one; varied
        /// by up to a tenth. "none" for no limit, which is the default. Behind a load balancer that spreads
        /// connections, not calls, "30m" lets new replicas get their share.
        max_connection_age: Option<Duration> = Or("none", Time(SOME_TIME)), Default("none"), NeedsRestart;
        /// Time that the calls of such a connection may go on before it is closed. "none" for no limit, which is the
        /// default: no call is cut short.
        max_connection_age_grace: Option<Duration> = Or("none", Time(ANY_TIME)), Default("none"), NeedsRestart;
        /// Compressions of answers, like ["zstd", "gzip"], each used for clients that accept it. None by default,
        /// because it costs more processor time than a fast network saves. Compressed requests, with gzip or zstd, are
        /// always accepted.
        compression: Vec<Compression> = List(Choice), Default([]), NeedsRestart;
    }
}

words! {
    /// A compression of gRPC messages.
    pub enum Compression {
        Gzip = "gzip",
        Zstd = "zstd",
    }
}

/// Files of the server's TLS material.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The server's certificate and its intermediate certificates, in PEM.
    pub cert: PathBuf,
    pub key: PathBuf,
    /// Authorities of which one must have signed a client's certificate.
    pub client_ca: Option<PathBuf>,
}

impl ServerConfig {
    /// The TLS files; `None` without TLS.
    #[must_use]
    pub fn tls(&self) -> Option<TlsFiles> {
        let (cert, key) = (self.tls_cert.clone()?, self.tls_key.clone()?);
        Some(TlsFiles { cert, key, client_ca: self.tls_client_ca.clone() })
    }
}

pub(in crate::config) fn read(section: &SectionReader<'_>) -> ServerConfig {
    let settings = ServerSettings::read(section);
    report_same_address(&settings, section);
    report_partial_tls(&settings, section);
    settings.into_config()
}

/// Port 0 stands for any free port, so there the same address twice is no conflict.
fn report_same_address(settings: &ServerSettings<'_>, section: &SectionReader<'_>) {
    let (Some(Listen::Tcp(grpc)), Some(Some(http))) = (settings.listen.valid(), settings.http.valid()) else {
        return;
    };
    if grpc != http || http.port() == 0 {
        return;
    }
    // The defaults differ, so at least one of the two is written.
    if settings.http.is_default() {
        section.report(&settings.listen, "is the address of server.http too; each needs its own");
    } else {
        section.report(&settings.http, "is the address of server.listen too; each needs its own");
    }
}

fn report_partial_tls(settings: &ServerSettings<'_>, section: &SectionReader<'_>) {
    let (cert, key, client_ca) = (&settings.tls_cert, &settings.tls_key, &settings.tls_client_ca);
    for (setting, needed, name) in [(cert, key, "tls_key"), (key, cert, "tls_cert"), (client_ca, cert, "tls_cert")] {
        if setting.written().is_some() && needed.is_default() {
            section.report(setting, format!("is of no use without `{name}`: set both or none"));
        }
    }
}
