//! The fast path finds the usual frames, and finds the same as the full parse.

use proptest::prelude::*;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::super::{
    WorkerFrame,
    scan::{is_json, scan},
};
use super::properties::{json_value, text};

/// JSON, and what looks like it.
fn value_text() -> impl Strategy<Value = String> {
    prop_oneof![
        json_value().prop_map(|value| value.to_string()),
        json_value().prop_map(|value| format!("{value:#}").replace('\n', " ")),
        r#"[\[\]{}:,"\\u0-9deE+. a-f\-]{0,30}"#,
        r"-?[0-9]{0,3}\.?[0-9]{0,2}([eE][+-]?[0-9]{0,2})?",
        r#""([a-z é😀]|\\[nu"\\/bx]|\\u[0-9a-fA-F]{3,4}){0,8}""#,
        prop::sample::select(vec!["true", "false", "null", "tru", "nulll", r#""\ud800""#]).prop_map(str::to_owned),
    ]
}

/// The fields of a frame as text: usual ones, some twice, some unknown, some wrong.
fn field() -> impl Strategy<Value = String> {
    let content = value_text();
    let types = vec![r#""message""#, r#""complete""#, r#""session""#, r#""mess\u0061ge""#, "7"];
    let frame_type = prop::sample::select(types);
    let id = prop_oneof![text().prop_map(|id| serde_json::json!(id).to_string()), "\"[a-z]{0,4}\"", "[0-9]{1}", "null"];
    prop_oneof![
        4 => frame_type.prop_map(|value| format!("\"type\":{value}")),
        4 => id.prop_map(|value| format!("\"requestId\":{value}")),
        3 => ("content|result", content).prop_map(|(name, value)| format!("\"{name}\":{value}")),
        1 => json_value().prop_map(|value| format!("\"extra\":{value}")),
    ]
}

fn line() -> impl Strategy<Value = String> {
    let space = "[ ]{0,2}|\t";
    (prop::collection::vec((field(), space), 0..5), space).prop_map(|(fields, last)| {
        let fields: Vec<_> = fields.into_iter().map(|(field, space)| format!("{space}{field}{space}")).collect();
        format!("{{{}}}{last}", fields.join(","))
    })
}

fn agrees(line: &[u8]) -> Result<(), TestCaseError> {
    if is_json(line) {
        prop_assert!(serde_json::from_slice::<IgnoredAny>(line).is_ok());
    }
    if let Some(frame) = scan(line) {
        prop_assert_eq!(Ok(frame), WorkerFrame::parse_fully(line));
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn scan_finds_the_same_as_the_full_parse(line in line()) {
        agrees(line.as_bytes())?;
    }

    #[test]
    fn so_it_is_after_damage(line in line(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut line = line.into_bytes();
        let position = at.index(line.len());
        line[position] = byte;
        agrees(&line)?;
        agrees(&line[..position])?;
    }

    #[test]
    fn values_are_judged_as_by_the_full_parse(text in value_text(), space in " {0,2}") {
        let text = format!("{space}{text}{space}");
        agrees(text.as_bytes())?;
        if let Ok(value) = serde_json::from_str::<Value>(&text) {
            prop_assert!(is_json(value.to_string().as_bytes()), "{}", value);
        }
    }

    #[test]
    fn usual_frames_are_found(content in json_value(), id in "[a-z0-9-]{0,36}", space in " ?", order in 0..6_usize) {
        let fields = [
            format!("\"type\":{space}\"message\""),
            format!("\"requestId\":{space}\"{id}\""),
            format!("\"content\":{space}{content}"),
        ];
        let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
        let line = format!("{{{}}}", orders[order].map(|index| fields[index].clone()).join(&format!(",{space}")));
        let content = content.to_string();
        let expected = WorkerFrame::Message { request_id: id.into(), content: &content };
        prop_assert_eq!(scan(line.as_bytes()), Some(expected), "{}", line);
    }
}

#[test]
fn result_is_found_too() {
    let complete = |result| Some(WorkerFrame::Complete { request_id: "1-7".into(), result });
    assert_eq!(
        scan(br#"{"type":"complete","requestId":"1-7","result":[1, {"a": -0.5e+3}]}"#),
        complete("[1, {\"a\": -0.5e+3}]")
    );
    assert_eq!(scan(br#"{ "type": "complete", "requestId": "1-7" } "#), complete("null"));
}

#[test]
fn depth_beyond_what_it_keeps_track_of_is_left_to_the_full_parse() {
    let line = |levels: usize| {
        let content = "[{\"a\":".repeat(levels) + "1" + &"}]".repeat(levels);
        format!(r#"{{"type":"message","requestId":"a","content":{content}}}"#)
    };
    assert!(scan(line(31).as_bytes()).is_some());
    assert!(scan(line(32).as_bytes()).is_none());
    assert!(WorkerFrame::parse(line(32).as_bytes()).is_ok());
}
