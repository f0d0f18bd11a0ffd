//! Batches of messages, and a log that has no room for all of them.

use std::ops::Range;

use super::*;
use crate::broker::{EventReader, MessageBatchBuilder, next_events};

/// Messages that came together.
fn messages(numbers: Range<usize>) -> Output {
    let mut builder = MessageBatchBuilder::default();
    for number in numbers {
        builder.push_checked(&number.to_string(), 0);
    }
    builder.take().expect("there are several")
}

async fn read(reader: &mut EventReader) -> Vec<(u64, String)> {
    let events = next_events(reader).await.unwrap();
    let content = |body| match body {
        EventBody::Message { content } => content.as_str().to_owned(),
        body => panic!("{body:?}"),
    };
    events.into_iter().map(|event| (event.sequence, content(event.body))).collect()
}

#[tokio::test]
async fn batch_is_split_where_the_log_is_full() {
    let broker = broker_with(MemoryLimits { max_events: 4, overflow: Overflow::Stall, ..LIMITS });
    broker.submit(query("q", 0)).await.unwrap();
    let mut lease = claim(&broker).await.unwrap().lease;
    let mut reader = broker.read(&id("q"), 0).await.unwrap();
    let mut outputs = vec![messages(0..3), messages(3..9)];
    for (expected, left) in [(0..4, 5), (4..8, 1), (8..9, 0)] {
        lease.append_now(&mut outputs);
        assert_eq!(outputs.iter().map(Output::event_count).sum::<usize>(), left);
        let expected: Vec<_> = expected.map(|number| (number, number.to_string())).collect();
        assert_eq!(read(&mut reader).await, expected);
    }
    // Where nobody reads, all are taken, and the oldest go.
    outputs = vec![messages(9..12), messages(12..14)];
    drop(reader);
    lease.append_now(&mut outputs);
    assert!(outputs.is_empty());
    let mut reader = broker.read(&id("q"), 10).await.unwrap();
    let expected: Vec<_> = (10..14).map(|number| (number, number.to_string())).collect();
    assert_eq!(read(&mut reader).await, expected);
}
