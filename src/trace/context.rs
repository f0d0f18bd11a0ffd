//! Where in a distributed trace something stands, as W3C trace context writes it: `traceparent` and `tracestate`.

use std::{fmt, sync::Arc};

use http::{
    HeaderMap,
    header::{HeaderName, HeaderValue},
};

static PARENT: HeaderName = HeaderName::from_static("traceparent");
static STATE: HeaderName = HeaderName::from_static("tracestate");

/// The only version there is; later ones begin in the same way.
const VERSION: &str = "00";
/// `00-` trace id `-` span id `-` flags.
const LENGTH: usize = 55;
/// What every participant must be able to pass on; more is dropped.
const MAX_STATE: usize = 512;
/// The bits that have a meaning: sampled, and random trace id.
const KNOWN_FLAGS: u8 = 0b11;

/// One span of one trace. Neither id is zero.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Context {
    pub trace: TraceId,
    pub span: u64,
    pub flags: u8,
    /// What tracing systems of others want passed on.
    pub state: Option<Arc<str>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceId(pub u128);

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl Context {
    /// What the caller sent along. One that is malformed, or sent twice, is as good as none: a call never fails by it.
    #[must_use]
    pub fn of_caller(headers: &HeaderMap) -> Option<Self> {
        let mut parents = headers.get_all(&PARENT).iter();
        let parent = parents.next()?.to_str().ok()?;
        if parents.next().is_some() {
            return None;
        }
        Some(Self { state: state(headers), ..Self::parse(parent)? })
    }

    fn parse(text: &str) -> Option<Self> {
        let (head, rest) = text.split_at_checked(LENGTH)?;
        let mut parts = head.split('-');
        let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let known = version == VERSION && rest.is_empty();
        let later = hex(version, 2)? != 0 && version != "ff" && (rest.is_empty() || rest.starts_with('-'));
        let trace = TraceId(hex(trace, 32).filter(|id| *id != 0)?);
        let span = u64::try_from(hex(span, 16).filter(|id| *id != 0)?).ok()?;
        let flags = u8::try_from(hex(flags, 2)?).ok()? & KNOWN_FLAGS;
        ((known || later) && parts.next().is_none()).then_some(Self { trace, span, flags, state: None })
    }

    #[must_use]
    pub fn traceparent(&self) -> String {
        format!("{VERSION}-{}-{:016x}-{:02x}", self.trace, self.span, self.flags)
    }
}

/// A list may be spread over several headers.
fn state(headers: &HeaderMap) -> Option<Arc<str>> {
    let parts: Result<Vec<_>, _> = headers.get_all(&STATE).iter().map(HeaderValue::to_str).collect();
    let state = parts.ok()?.join(",");
    (!state.is_empty() && state.len() <= MAX_STATE).then(|| state.into())
}

/// Only lower case counts, and only the whole length.
fn hex(text: &str, digits: usize) -> Option<u128> {
    let right = text.len() == digits && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    u128::from_str_radix(text, 16).ok().filter(|_| right)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn read(headers: &[(&'static str, &str)]) -> Option<Context> {
        let headers = headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
        Context::of_caller(&headers.fold(HeaderMap::new(), |mut all, (name, value): (HeaderName, _)| {
            all.append(name, value);
            all
        }))
    }

    #[test]
    fn what_a_caller_sends_is_passed_on() {
        let context = read(&[("traceparent", PARENT), ("tracestate", "a=1"), ("tracestate", "b=2")]).unwrap();
        assert_eq!(context.trace.to_string(), "0af7651916cd43dd8448eb211c80319c");
        assert_eq!((context.span, context.flags), (0xb7ad_6b71_6920_3331, 1));
        assert_eq!(context.state.as_deref(), Some("a=1,b=2"));
        assert_eq!(context.traceparent(), PARENT);
    }

    #[test]
    fn later_versions_begin_like_this_one() {
        let expected = read(&[("traceparent", PARENT)]);
        for later in [PARENT.replacen("00", "01", 1), format!("{}-more", PARENT.replacen("00", "cc", 1))] {
            assert_eq!(read(&[("traceparent", &later)]), expected, "{later}");
        }
    }

    #[test]
    fn what_is_malformed_is_ignored() {
        for bad in [
            "",
            "00",
            &PARENT[..54],
            &format!("{PARENT}-more"),
            &format!("{PARENT}0"),
            &PARENT.to_uppercase(),
            &PARENT.replacen("00", "ff", 1),
            &PARENT.replacen("00", "cc", 1).replacen("-01", "-01x", 1),
            &PARENT.replace("0af7651916cd43dd8448eb211c80319c", &"0".repeat(32)),
            &PARENT.replace("b7ad6b7169203331", &"0".repeat(16)),
            &PARENT.replace('b', "g"),
            &PARENT.replace("0af7", "+af7"),
            &PARENT.replace('-', "_"),
        ] {
            assert_eq!(read(&[("traceparent", bad)]), None, "{bad:?}");
        }
        assert_eq!(read(&[("traceparent", PARENT), ("traceparent", PARENT)]), None);
        assert_eq!(read(&[]), None);
        let long = "x".repeat(MAX_STATE + 1);
        assert_eq!(read(&[("traceparent", PARENT), ("tracestate", &long)]).unwrap().state, None);
    }

    proptest! {
        #[test]
        fn nothing_makes_it_fail(text in "\\PC{0,80}") {
            let _ = Context::parse(&text);
        }

        #[test]
        fn what_it_writes_it_reads(trace in 1..=u128::MAX, span in 1..=u64::MAX, flags in 0..=KNOWN_FLAGS) {
            let context = Context { trace: TraceId(trace), span, flags, state: None };
            prop_assert_eq!(Context::parse(&context.traceparent()), Some(context));
        }
    }
}
