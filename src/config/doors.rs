//! Reads how the server is protected: TLS, tokens, and what needs neither.

use super::choice::HTTP_PATHS;
use super::keys;
use super::model::TlsFiles;
use super::problem::Problem;
use super::reader::{Origin, SectionReader, values};
use super::sections::Input;
use super::values::path;

/// A certificate is of no use without its key, nor a key without its certificate, nor authorities
/// without both.
pub(super) fn tls(section: &mut SectionReader<'_>, input: &Input<'_>) -> Option<TlsFiles> {
    let cert = section.read_optional(&keys::TLS_CERT, path(input.base));
    let key = section.read_optional(&keys::TLS_KEY, path(input.base));
    let client_ca = section.read_optional(&keys::TLS_CLIENT_CA, path(input.base));
    let needs = [
        (&keys::TLS_CERT, &cert, &keys::TLS_KEY),
        (&keys::TLS_KEY, &key, &keys::TLS_CERT),
        (&keys::TLS_CLIENT_CA, &client_ca, &keys::TLS_CERT),
    ];
    for (written, setting, needed) in needs {
        if let Origin::Written(place) = &setting.origin
            && !section.has(needed)
        {
            section.mistake(written, place, Problem::Needs { other: needed.name });
        }
    }
    Some(TlsFiles { cert: cert.value?, key: key.value?, client_ca: client_ca.value })
}

pub(super) fn open_paths(section: &mut SectionReader<'_>) -> Vec<String> {
    values(section.read_list(&keys::HTTP_OPEN_PATHS, |node| HTTP_PATHS.parse(node).map(str::to_owned)).value)
}
