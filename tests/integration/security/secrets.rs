//! The token file and the private key are the server's own: kinds whose workers could get at them are refused.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::json;

use crate::{
    harness::{
        Authority, SHARED_SECRETS, Server, fake_kind, is_root, output_of, public_copy, public_dir, remuda, run, skip,
    },
    integration::sandbox::confinement::kernel_has_landlock,
};

struct Setup {
    dir: tempfile::TempDir,
    tokens: PathBuf,
    key: PathBuf,
}

const TOKEN: &str = "admin-0123456789ab";

impl Setup {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (_, key) = Authority::new().issue("localhost").write(dir.path(), "server");
        let tokens = dir.path().join("tokens");
        fs::write(&tokens, format!("ops admin {TOKEN}\n")).unwrap();
        for file in [&tokens, &key] {
            fs::set_permissions(file, PermissionsExt::from_mode(0o600)).unwrap();
        }
        Self { dir, tokens, key }
    }

    /// With tokens on the gRPC side, which speaks plain text, so that the tests' client can talk to it.
    fn with_tokens(&self, kinds: &str) -> String {
        let tokens = self.tokens.display();
        format!("[server]\nlisten = \"127.0.0.1:0\"\nhttp = \"127.0.0.1:0\"\ntokens = '{tokens}'\n{kinds}")
    }

    fn with_tls(&self, kinds: &str) -> String {
        let tls = format!("tls_cert = '{}/server.crt'\ntls_key = '{}'", self.dir.path().display(), self.key.display());
        format!("[server]\nlisten = \"127.0.0.1:0\"\nhttp = \"off\"\n{tls}\n{kinds}")
    }

    /// Runs a command with the token.
    fn run(&self, server: &Server, arguments: &[&str]) -> (i32, String, String) {
        let mine = self.dir.path().join("mine");
        fs::write(&mine, TOKEN).unwrap();
        run(server, &[&["--token-file", mine.to_str().unwrap()], arguments].concat())
    }

    /// The text with which `config check` and `serve` refuse a configuration.
    fn refusal(&self, config: &str) -> String {
        let file = self.dir.path().join("remuda.toml");
        fs::write(&file, config).unwrap();
        let say = |arguments: &[&str]| output_of(&strict(remuda().args(arguments).arg(&file)).output().unwrap());
        let (code, _, checked) = say(&["config", "check"]);
        assert_eq!(code, 1, "{checked}");
        let (code, _, served) = say(&["serve", "--config"]);
        assert_eq!((code, &served), (1, &checked));
        checked
    }
}

/// Without what most tests allow.
fn strict(command: &mut Command) -> &mut Command {
    command.env_remove(SHARED_SECRETS)
}

#[test]
fn kind_whose_workers_could_read_a_secret_is_refused_with_the_ways_out() {
    let setup = Setup::new();
    let kinds = fake_kind("k", &[], "min = 0");
    for (config, key, file) in [
        (setup.with_tokens(&kinds), "server.tokens", &setup.tokens),
        (setup.with_tls(&kinds), "server.tls_key", &setup.key),
    ] {
        let refusal = setup.refusal(&config);
        let leak = format!("workers of the kind k could read {} ({key})", file.display());
        for part in [leak.as_str(), "user", "landlock_read", "server.workers_may_read_secrets = true"] {
            assert!(refusal.contains(part), "{part} in {refusal}");
        }
    }
    // Said to be meant, it is served.
    let config = setup.with_tokens(&kinds).replace("[server]\n", "[server]\nworkers_may_read_secrets = true\n");
    let server = Server::start_with(&config, |command| {
        strict(command);
    });
    assert_eq!(server.stop_cleanly().code(), Some(0));
}

#[test]
fn kind_confined_with_a_secret_or_able_to_replace_it_is_refused() {
    if !kernel_has_landlock() {
        return skip("Landlock");
    }
    let setup = Setup::new();
    let kind = |settings: &str| fake_kind("k", &[], settings);
    let (parent, tokens) = (setup.dir.path(), &setup.tokens);
    for inside in [parent, tokens, Path::new("/")] {
        let refusal = setup.refusal(&setup.with_tokens(&kind(&format!("landlock_read = [{inside:?}, \"/no/such\"]"))));
        assert!(refusal.contains("could read"), "{refusal}");
    }
    let refusal = setup.refusal(&setup.with_tokens(&kind(&format!("landlock_read = []\ndir = {parent:?}"))));
    assert!(refusal.contains("could read"), "{refusal}");
    if is_root() {
        let open = |mode| fs::set_permissions(parent, PermissionsExt::from_mode(mode)).unwrap();
        open(0o777);
        let refusal = setup.refusal(&setup.with_tokens(&kind("user = \"nobody\"")));
        assert!(refusal.contains("could replace"), "{refusal}");
    }
}

#[test]
fn worker_of_another_user_or_in_landlock_cannot_read_the_servers_secrets() {
    let setup = Setup::new();
    let (programs, sockets) = (public_dir(), public_dir());
    let worker = public_copy(env!("CARGO_BIN_EXE_fake-worker"), &programs);
    let mut ways = Vec::new();
    if is_root() {
        ways.push("user = \"nobody\"");
    }
    if kernel_has_landlock() {
        ways.push("landlock_read = []");
    } else {
        skip("Landlock");
    }
    for way in ways {
        let kind = format!("[kinds.k]\ncommand = [{worker:?}]\nmin = 1\n{way}\n");
        let server = Server::start_with(&setup.with_tokens(&kind), |command| {
            strict(command).env("REMUDA__POOL__SOCKET_DIR", sockets.path());
        });
        let tries = [json!({"read": setup.tokens}), json!({"read": setup.key}), json!({"write": setup.tokens})];
        let steps: Vec<_> = tries.iter().map(|attempt| json!({ "try": attempt })).collect();
        let (code, stdout, stderr) = setup.run(&server, &["run", &json!({ "steps": steps }).to_string()]);
        assert_eq!((code, stdout.matches("PermissionDenied").count()), (0, 3), "{way}: {stdout}{stderr}");
        assert_eq!(server.stop_cleanly().code(), Some(0));
    }
}

#[test]
fn reload_refuses_a_kind_that_could_read_a_secret() {
    if !is_root() {
        return;
    }
    let setup = Setup::new();
    let safe = setup.with_tokens(&fake_kind("k", &[], "min = 0\nuser = \"nobody\"\ntypes = [\"k\"]"));
    let server = Server::start_with(&safe, |command| {
        strict(command);
    });
    server.rewrite(&format!("{safe}{}", fake_kind("more", &[], "types = [\"more\"]")));
    let reload = || setup.run(&server, &["reload"]);
    let (code, _, stderr) = reload();
    assert!(code != 0 && stderr.contains("workers of the kind more could read"), "{stderr}");
    server.rewrite(&format!("{safe}{}", fake_kind("more", &[], "types = [\"more\"]\nuser = \"nobody\"")));
    let (code, stdout, stderr) = reload();
    assert!(code == 0 && stdout.contains("more"), "{stdout}{stderr}");
}

#[test]
fn secret_that_others_can_read_is_logged() {
    let setup = Setup::new();
    let file = setup.dir.path().join("remuda.toml");
    fs::write(&file, setup.with_tokens(&fake_kind("k", &[], "min = 0"))).unwrap();
    let warnings = || output_of(&remuda().args(["config", "check"]).arg(&file).output().unwrap()).2;
    assert_eq!(warnings(), "");
    for (mode, told) in [(0o644, true), (0o602, true), (0o640, false)] {
        fs::set_permissions(&setup.tokens, PermissionsExt::from_mode(mode)).unwrap();
        let text = format!("warning: {} can be read or written by others", setup.tokens.display());
        assert_eq!(warnings().starts_with(&text), told, "{mode:o}: {}", warnings());
    }
}
