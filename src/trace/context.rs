//! The position of a call in a distributed trace, in the headers of W3C trace context: `traceparent` and `tracestate`.

use http::{
    HeaderMap,
    header::{HeaderName, HeaderValue},
};
use opentelemetry::trace::{SpanContext, SpanId, TraceFlags, TraceId, TraceState};

/// One span of one trace.
pub type TraceContext = SpanContext;

static TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
static TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// The only version so far; later ones begin in the same way.
const VERSION: &str = "00";
/// Length of `00-` trace id `-` span id `-` flags.
const TRACEPARENT_LENGTH: usize = 55;
/// Size that every participant must be able to pass on; a longer state is dropped.
const TRACESTATE_MAX_BYTES: usize = 512;
/// The flags that have a meaning: sampled, and random trace id.
const KNOWN_FLAGS: u8 = 0b11;

/// The context that the caller sent. One that is malformed, or sent twice, counts as none: a call never fails by it.
pub(super) fn from_headers(headers: &HeaderMap) -> Option<TraceContext> {
    let mut parents = headers.get_all(&TRACEPARENT).iter();
    let parent = parents.next()?.to_str().ok()?;
    if parents.next().is_some() {
        return None;
    }
    parse(parent, || tracestate(headers))
}

pub(super) fn traceparent(context: &TraceContext) -> String {
    format!("{VERSION}-{}-{}-{:02x}", context.trace_id(), context.span_id(), context.trace_flags().to_u8())
}

fn parse(text: &str, state: impl FnOnce() -> TraceState) -> Option<TraceContext> {
    let (head, rest) = text.split_at_checked(TRACEPARENT_LENGTH)?;
    let mut parts = head.split('-');
    let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let is_known = version == VERSION && rest.is_empty();
    let is_later = hex(version, 2)? != 0 && version != "ff" && (rest.is_empty() || rest.starts_with('-'));
    let trace = TraceId::from(hex(trace, 32)?);
    let span = SpanId::from(u64::try_from(hex(span, 16)?).ok()?);
    let flags = TraceFlags::new(u8::try_from(hex(flags, 2)?).ok()? & KNOWN_FLAGS);
    let is_valid = (is_known || is_later) && parts.next().is_none();
    is_valid.then(|| SpanContext::new(trace, span, flags, true, state())).filter(SpanContext::is_valid)
}

/// The state, which may be spread over several headers.
fn tracestate(headers: &HeaderMap) -> TraceState {
    let parts: Result<Vec<_>, _> = headers.get_all(&TRACESTATE).iter().map(HeaderValue::to_str).collect();
    let state = parts.unwrap_or_default().join(",");
    if state.len() > TRACESTATE_MAX_BYTES { TraceState::default() } else { state.parse().unwrap_or_default() }
}

/// Accepts lower case only, and only the whole length.
fn hex(text: &str, digits: usize) -> Option<u128> {
    let is_hex = text.len() == digits && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    u128::from_str_radix(text, 16).ok().filter(|_| is_hex)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn read(headers: &[(&'static str, &str)]) -> Option<TraceContext> {
        let headers = headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
        from_headers(&headers.fold(HeaderMap::new(), |mut all, (name, value): (HeaderName, _)| {
            all.append(name, value);
            all
        }))
    }

    #[test]
    fn context_of_the_caller_is_passed_on() {
        let context = read(&[("traceparent", PARENT), ("tracestate", "a=1"), ("tracestate", "b=2")]).unwrap();
        assert_eq!(context.trace_id().to_string(), "0af7651916cd43dd8448eb211c80319c");
        assert_eq!(context.span_id(), SpanId::from(0xb7ad_6b71_6920_3331));
        assert!(context.is_sampled() && context.is_remote());
        assert_eq!(context.trace_state().header(), "a=1,b=2");
        assert_eq!(traceparent(&context), PARENT);
    }

    #[test]
    fn later_versions_begin_like_this_one() {
        let expected = read(&[("traceparent", PARENT)]);
        for later in [PARENT.replacen("00", "01", 1), format!("{}-more", PARENT.replacen("00", "cc", 1))] {
            assert_eq!(read(&[("traceparent", &later)]), expected, "{later}");
        }
    }

    #[test]
    fn malformed_context_is_ignored() {
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
        for state in [&*format!("a={}", "x".repeat(TRACESTATE_MAX_BYTES)), "no equals sign"] {
            let context = read(&[("traceparent", PARENT), ("tracestate", state)]).unwrap();
            assert_eq!(context.trace_state().header(), "", "{state}");
        }
    }

    proptest! {
        #[test]
        fn parsing_never_fails(text in "\\PC{0,80}") {
            let _ = parse(&text, TraceState::default);
        }

        #[test]
        fn written_context_is_read_back(trace in 1..=u128::MAX, span in 1..=u64::MAX, flags in 0..=KNOWN_FLAGS) {
            let (trace, span) = (TraceId::from(trace), SpanId::from(span));
            let context = SpanContext::new(trace, span, TraceFlags::new(flags), true, TraceState::default());
            prop_assert_eq!(parse(&traceparent(&context), TraceState::default), Some(context));
        }
    }
}
