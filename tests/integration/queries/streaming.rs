//! Several readers, resuming, and logs that outgrow their bounds.

use remuda::api::proto::event::Body;
use serde_json::json;

use crate::harness::{Server, fake_kind, query};

#[tokio::test]
async fn readers_see_every_message_once_and_in_order() {
    let server = Server::start(&fake_kind("k", &[], "min = 1"));
    let mut client = server.client().await;
    let steps = json!({"steps": [{"messages": {"count": 1000, "size": 20, "delay_ms": 1}}, {"complete": "end"}]});
    let id = client.submit(query(&steps)).await.unwrap();

    let steady = tokio::spawn({
        let (mut client, id) = (client.clone(), id.clone());
        async move { client.read(&id, 0, usize::MAX).await.unwrap() }
    });
    // This one drops at message 500 and resumes from there.
    let mut interrupted = client.read(&id, 0, 500).await.unwrap();
    interrupted.extend(client.read(&id, 500, usize::MAX).await.unwrap());
    let steady = steady.await.unwrap();
    let afterwards = client.read(&id, 0, usize::MAX).await.unwrap();

    for (reader, events) in [("steady", &steady), ("interrupted", &interrupted), ("afterwards", &afterwards)] {
        let sequences: Vec<u64> = events.iter().map(|event| event.sequence).collect();
        assert_eq!(sequences, (0..=1000).collect::<Vec<_>>(), "{reader}");
        for (event, n) in events[..1000].iter().zip(1..) {
            let Some(Body::Message(message)) = &event.body else { panic!("{reader}: {event:?}") };
            let content: serde_json::Value = serde_json::from_str(&message.content).unwrap();
            assert_eq!(content["n"], json!(n), "{reader}");
        }
        assert!(matches!(&events[1000].body, Some(Body::Complete(_))), "{reader}");
    }
}

#[tokio::test]
async fn reader_learns_what_is_no_longer_kept() {
    let kind = fake_kind("k", &[], "min = 1");
    let server = Server::start(&format!("[results]\nmax_events = 10\n{kind}"));
    let mut client = server.client().await;
    let steps = json!({"steps": [{"messages": {"count": 100, "size": 1}}, {"complete": 1}]});
    let ended = client.execute(query(&steps)).await;
    let events = client.read(&ended.query_id, 0, usize::MAX).await.unwrap();
    let Some(Body::Gap(gap)) = &events[0].body else { panic!("{events:?}") };
    assert_eq!((gap.first, gap.last, events[0].sequence), (0, 89, 89));
    let sequences: Vec<u64> = events.iter().map(|event| event.sequence).collect();
    assert_eq!(sequences, (89..=100).collect::<Vec<_>>());
    // Resuming after the gap event misses nothing and sees no second gap.
    assert_eq!(client.read(&ended.query_id, 90, usize::MAX).await.unwrap(), events[1..]);
}

#[tokio::test]
async fn ended_query_is_forgotten_after_its_retention() {
    let kind = fake_kind("k", &[], "min = 1");
    let server = Server::start(&format!("[results]\nretention = \"100ms\"\n{kind}"));
    let mut client = server.client().await;
    let id = client.execute(query(&json!(1))).await.query_id;
    let text = crate::harness::eventually_async("the query to be forgotten", || {
        let (mut client, id) = (client.clone(), id.clone());
        async move { client.read(&id, 0, 1).await.err().map(|status| status.message().to_owned()) }
    })
    .await;
    assert_eq!(
        text,
        format!("query {id} is not known; it may have ended so long ago that it is no longer kept (results.retention)")
    );
}
