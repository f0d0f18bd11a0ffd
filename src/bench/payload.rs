//! Makes the payload that asks an echo worker for messages of a size.

use thiserror::Error;

/// No payload that asks for what was wanted is that small.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("at least {least} bytes, or it cannot say what the worker shall do")]
pub struct PayloadTooSmall {
    pub least: usize,
}

/// JSON text of exactly `bytes` bytes.
pub fn payload(messages: u64, size: u64, bytes: usize) -> Result<String, PayloadTooSmall> {
    let start = format!("{{\"stream\":{messages},\"size\":{size},\"pad\":\"");
    let end = "\"}";
    let least = start.len() + end.len();
    let padding = bytes.checked_sub(least).ok_or(PayloadTooSmall { least })?;
    Ok(start + &"x".repeat(padding) + end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payload_has_the_size_and_says_what_to_do() {
        for bytes in [32, 200, 65_536] {
            let payload = payload(1, 200, bytes).unwrap();
            assert_eq!(payload.len(), bytes);
            let read: serde_json::Value = serde_json::from_str(&payload).unwrap();
            assert_eq!((&read["stream"], &read["size"]), (&1.into(), &200.into()));
        }
        assert_eq!(payload(1, 200, 31).unwrap_err(), PayloadTooSmall { least: 32 });
    }
}
