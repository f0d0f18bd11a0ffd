//! Reads the payload of a query and checks that it is JSON.

use std::{
    fs::File,
    io::{self, Read},
};

use super::exit::CliError;
use crate::protocol::JsonText;

/// More than any server takes; a larger file is a mistake, like the path of a device.
const PAYLOAD_MAX_BYTES: u64 = 1 << 30;

/// Reads a payload that is given as JSON text, as `@file`, or as `-` for standard input.
pub(super) fn read(argument: &str) -> Result<String, CliError> {
    let (bytes, place) = match argument.strip_prefix('@') {
        Some(path) => (File::open(path).and_then(read_bytes), path),
        None if argument == "-" => (read_bytes(io::stdin().lock()), "standard input"),
        None => return check(argument.as_bytes().to_vec(), "the payload", argument),
    };
    let bytes = bytes.map_err(|error| CliError::Usage(format!("cannot read the payload from {place}: {error}")))?;
    check(bytes, &format!("the payload from {place}"), argument)
}

fn read_bytes(source: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    source.take(PAYLOAD_MAX_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > PAYLOAD_MAX_BYTES {
        return Err(io::Error::other("it is larger than 1 GiB, which no server takes"));
    }
    Ok(bytes)
}

fn check(bytes: Vec<u8>, what: &str, argument: &str) -> Result<String, CliError> {
    match JsonText::parse(bytes) {
        Ok(json) => Ok(json.as_str().to_owned()),
        Err(error) => Err(CliError::Usage(format!("{what} is not JSON: {error}{}", hint(argument)))),
    }
}

/// Advice on quoting, for a payload on the command line.
fn hint(argument: &str) -> String {
    if argument.starts_with('@') || argument == "-" {
        return String::new();
    }
    let got: String = argument.chars().take(80).collect();
    let quoted = "quote it for the shell, and its strings for JSON: remuda run '{\"hello\":\"world\"}'";
    format!("\n  got: {got}\n  {quoted}\n  or read it from a file with @FILE, or from standard input with -")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(argument: &str) -> String {
        let failure = read(argument).unwrap_err();
        assert!(matches!(failure, CliError::Usage(_)));
        failure.to_string()
    }

    #[test]
    fn json_is_passed_on_to_the_letter() {
        for text in [r#"{"a": 1.0}"#, "-5", "null", "[1,\n 2]"] {
            assert_eq!(read(text).unwrap(), text);
        }
    }

    #[test]
    fn invalid_json_is_refused_with_advice_on_quoting() {
        let text = refused("{hello:world}");
        assert!(text.starts_with("the payload is not JSON: invalid JSON at line 1 column 2: key must be a string\n"));
        assert!(text.contains("\n  got: {hello:world}\n"));
        assert!(text.contains(r#"remuda run '{"hello":"world"}'"#));
    }

    #[test]
    fn file_is_read_and_named_in_errors() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("payload.json");
        let argument = format!("@{}", path.display());
        assert!(
            refused(&argument).starts_with(&format!("cannot read the payload from {}: No such file", path.display()))
        );
        std::fs::write(&path, "{\n  \"a\": 1\n}\n").unwrap();
        assert_eq!(read(&argument).unwrap(), "{\n  \"a\": 1\n}\n");
        std::fs::write(&path, "{\n  \"a\"").unwrap();
        let text = refused(&argument);
        assert!(text.starts_with(&format!("the payload from {} is not JSON: invalid JSON at line 2", path.display())));
        assert!(!text.contains("quote"));
    }
}
