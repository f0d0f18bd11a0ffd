//! Checks a machine against a matrix drawn by hand in its test, so that table and test are written twice.

use super::{IllegalTransition, State, transition};

/// The first line of `drawing` names the states to go to. Every other line names the state to come
/// from and has one mark for each column: `x` allowed, `.` refused.
#[track_caller]
pub(super) fn assert_transitions<S: State>(drawing: &str) {
    let mut lines = drawing.lines().filter(|line| !line.trim().is_empty());
    let header = lines.next().expect("the drawing has a header");
    let columns: Vec<S> = header.split_whitespace().map(named).collect();
    assert_each_once(&columns);

    let mut rows = Vec::new();
    let mut allowed = 0;
    for line in lines {
        let mut words = line.split_whitespace();
        let from = named(words.next().expect("a row names its state"));
        let marks: Vec<_> = words.collect();
        allowed += assert_row(from, &columns, &marks);
        rows.push(from);
    }
    assert_each_once(&rows);
    assert_eq!(S::TABLE.len(), allowed, "the table has each transition once");
}

/// Returns the number of allowed transitions in the row.
#[track_caller]
fn assert_row<S: State>(from: S, columns: &[S], marks: &[&str]) -> usize {
    assert_eq!(marks.len(), columns.len(), "one mark for each column in row {from}");
    for (&to, &mark) in columns.iter().zip(marks) {
        let expected = match mark {
            "x" => Ok(()),
            "." => Err(IllegalTransition { from, to }),
            other => panic!("unknown mark {other} in row {from}"),
        };
        assert_eq!(transition(from, to), expected, "{from} to {to}");
    }
    marks.iter().filter(|&&mark| mark == "x").count()
}

#[track_caller]
fn named<S: State>(name: &str) -> S {
    let found = S::STATES.iter().find(|state| state.to_string() == name);
    *found.unwrap_or_else(|| panic!("no state is named {name}"))
}

#[track_caller]
fn assert_each_once<S: State>(drawn: &[S]) {
    assert_eq!(drawn.len(), S::STATES.len(), "as many as there are states");
    for (index, state) in S::STATES.iter().enumerate() {
        assert!(drawn.contains(state), "{state} is not drawn");
        assert_eq!(state.index(), index);
    }
}
