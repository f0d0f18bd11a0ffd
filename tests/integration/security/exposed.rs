//! Unprotected listeners on public addresses: refused or logged, alike by `config check` and by `serve`.

use std::process::Stdio;

use crate::harness::{Authority, Server, fake_kind, output_of, remuda};

struct Setup {
    dir: tempfile::TempDir,
    config: String,
}

impl Setup {
    /// A configuration with these lines in `[server]`, beside a certificate and a file of tokens that they may name.
    fn new(server: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        Authority::new().issue("localhost").write(dir.path(), "server");
        let tokens = dir.path().join("tokens");
        std::fs::write(&tokens, "ops admin admin-0123456789ab\n").unwrap();
        std::fs::set_permissions(&tokens, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        let config = format!("[server]\n{server}\n{}", fake_kind("k", &[], "min = 0"));
        std::fs::write(dir.path().join("remuda.toml"), &config).unwrap();
        Self { dir, config }
    }

    /// Exit code and standard error of a command that is given the configuration.
    fn run(&self, command: &[&str]) -> (i32, String) {
        let output = remuda().args(command).arg(self.dir.path().join("remuda.toml")).stdin(Stdio::null()).output();
        let (code, _, stderr) = output_of(&output.unwrap());
        (code, stderr)
    }

    fn check(&self) -> (i32, String) {
        self.run(&["config", "check"])
    }
}

const TLS: &str = "tls_cert = \"server.crt\"\ntls_key = \"server.key\"";
const TOKENS: &str = "tokens = \"tokens\"";

#[test]
fn server_without_protection_on_a_public_address_does_not_start() {
    let open = [
        "listen = \"0.0.0.0:0\"\nhttp = \"off\"".to_owned(),
        "listen = \"[::]:0\"\nhttp = \"off\"".to_owned(),
        "listen = \"127.0.0.1:0\"\nhttp = \"0.0.0.0:0\"".to_owned(),
        format!("listen = \"0.0.0.0:0\"\nhttp = \"0.0.0.0:0\"\nhttp_tls = false\n{TLS}"),
    ];
    for server in open {
        let setup = Setup::new(&server);
        let (code, refusal) = setup.run(&["serve", "--config"]);
        assert!(code == 1 && refusal.contains("allow_insecure") && refusal.contains("server.tokens"), "{refusal}");
        assert_eq!(setup.check(), (1, refusal), "{server}");
    }
}

#[test]
fn protection_files_must_exist_when_the_configuration_is_checked() {
    let doors = "listen = \"127.0.0.1:0\"\nhttp = \"off\"";
    for (missing, key) in [
        ("tokens = \"missing\"", "server.tokens"),
        ("tls_cert = \"missing\"\ntls_key = \"server.key\"", "server.tls_cert"),
        ("tls_cert = \"server.crt\"\ntls_key = \"tokens\"", "server.tls_key"),
    ] {
        let setup = Setup::new(&format!("{doors}\n{missing}"));
        let (code, refusal) = setup.run(&["serve", "--config"]);
        assert!(code == 1 && refusal.contains(key), "{refusal}");
        assert_eq!(setup.check(), (1, refusal));
    }
}

#[test]
fn deliberately_open_listener_is_logged_with_what_to_do() {
    let doors = "listen = \"0.0.0.0:0\"\nhttp = \"0.0.0.0:0\"";
    let cases = [
        ("allow_insecure = true".to_owned(), vec!["server.listen", "server.http"], "server.tls_cert"),
        (TOKENS.to_owned(), vec!["server.listen", "server.http"], "server.tls_cert"),
        (format!("{TOKENS}\n{TLS}\nhttp_tls = false"), vec!["server.http"], "server.http_tls = true"),
        (format!("{TOKENS}\n{TLS}"), vec![], ""),
        (TLS.to_owned(), vec![], ""),
    ];
    for (settings, keys, remedy) in cases {
        let setup = Setup::new(&format!("{doors}\n{settings}"));
        let (code, stderr) = setup.check();
        assert_eq!(code, 0, "{stderr}");
        let warnings: Vec<_> = stderr.lines().filter_map(|line| line.strip_prefix("warning: ")).collect();
        assert_eq!(warnings.len(), keys.len(), "{settings}: {stderr}");
        for (warning, key) in warnings.iter().zip(keys) {
            assert!(warning.starts_with(key) && warning.contains(remedy), "{warning}");
        }
    }
    // The server says the same in its log.
    let setup = Setup::new(&format!("{doors}\nallow_insecure = true"));
    let (_, stderr) = setup.check();
    let server = Server::start(&setup.config);
    let log = server.log().join("\n").replace("\\\"", "\"");
    assert!(stderr.lines().all(|line| log.contains(line.strip_prefix("warning: ").unwrap())), "{log}");
}
