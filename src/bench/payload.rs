//! The payload that asks an echo worker for messages of a size.

/// JSON text of exactly `bytes` bytes. The error is the least number of bytes.
pub fn payload(messages: u64, size: u64, bytes: usize) -> Result<String, usize> {
    let start = format!("{{\"stream\":{messages},\"size\":{size},\"pad\":\"");
    let end = "\"}";
    let least = start.len() + end.len();
    let padding = bytes.checked_sub(least).ok_or(least)?;
    Ok(start + &"x".repeat(padding) + end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payload_has_the_size_and_the_options() {
        for bytes in [32, 200, 65_536] {
            let payload = payload(1, 200, bytes).unwrap();
            assert_eq!(payload.len(), bytes);
            let read: serde_json::Value = serde_json::from_str(&payload).unwrap();
            assert_eq!((&read["stream"], &read["size"]), (&1.into(), &200.into()));
        }
        assert_eq!(payload(1, 200, 31).unwrap_err(), 32);
    }
}
