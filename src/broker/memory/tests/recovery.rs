//! Retries, dead letters, and logs that outgrow their bounds.

use super::*;

fn retry(delay: Duration) -> Ending {
    let failure = Failure::new(FailureReason::WorkerDied, "boom");
    Ending::Retry(Retrying { failed_attempt: 1, max_attempts: 2, delay, failure })
}

fn dead() -> Ending {
    let failure = Failure::new(FailureReason::WorkerDied, "boom");
    Ending::Over { outcome: Outcome::Error(Box::new(failure)), dead_letter: true }
}

#[tokio::test]
async fn retried_query_keeps_its_log_and_counts_its_attempts() {
    let broker = broker();
    broker.submit(query("a", 0)).await.unwrap();
    let lease = claim(&broker).await.unwrap().lease;
    assert_eq!(lease.finish(vec![message(1)], retry(Duration::ZERO)).await, Ok(QueryState::Pending));
    timeout(Duration::from_secs(1), broker.wait_for_arrival()).await.expect("a retry is announced");
    let again = claim(&broker).await.unwrap().lease;
    assert_eq!((again.attempts().attempt, again.attempts().died, again.attempts().reported), (2, 1, 0));
    again.finish(vec![message(2)], Ending::plain(complete())).await.unwrap();
    let events = read_all(&broker, "a", 0).await;
    let attempts: Vec<_> = events.iter().map(|event| (event.sequence, event.attempt)).collect();
    assert_eq!(attempts, [(0, 1), (1, 1), (2, 2), (3, 2)]);
    assert!(matches!(&events[1].body, EventBody::Retrying(retrying) if retrying.max_attempts == 2));
}

#[tokio::test]
async fn backoff_is_waited_out_and_can_be_cancelled() {
    let broker = broker();
    for name in ["waits", "cancelled"] {
        broker.submit(query(name, 0)).await.unwrap();
        let lease = claim(&broker).await.unwrap().lease;
        lease.finish(Vec::new(), retry(Duration::from_secs(3))).await.unwrap();
        assert_eq!(broker.get(&id(name)).await.unwrap().state, QueryState::RetryPending);
    }
    assert!(claim(&broker).await.is_none());
    assert_eq!(broker.unfinished_count(), 2);
    assert_eq!(broker.cancel(&id("cancelled"), "enough").await, Ok(CancelOutcome::Queued));
    broker.expire(Instant::now() + Duration::from_secs(3));
    assert_eq!(broker.waiting_count("k"), 1);
    assert_eq!(claim(&broker).await.unwrap().lease.query(), &id("waits"));
    assert!(matches!(ending(&broker, "cancelled").await, Outcome::Cancelled { stage: StopStage::Queued, .. }));
}

#[tokio::test]
async fn close_rejects_a_query_in_its_backoff() {
    let broker = broker();
    broker.submit(query("a", 0)).await.unwrap();
    let lease = claim(&broker).await.unwrap().lease;
    lease.finish(Vec::new(), retry(Duration::from_secs(3))).await.unwrap();
    assert_eq!(broker.close().await, 1);
    assert!(matches!(ending(&broker, "a").await, Outcome::Rejected { reason: RejectReason::Shutdown, .. }));
}

#[tokio::test]
async fn dead_letters_outlive_the_retention_and_are_requeued_under_another_id() {
    let broker = broker_with(MemoryLimits { max_dead: 2, ..LIMITS });
    for name in ["a", "b", "c"] {
        broker.submit(query(name, 0)).await.unwrap();
        claim(&broker).await.unwrap().lease.finish(Vec::new(), dead()).await.unwrap();
    }
    broker.expire(Instant::now() + Duration::from_mins(2));
    assert!(broker.get(&id("a")).await.is_err(), "only so many are kept");
    let page = broker.dead_letters(None, Page { after: 0, size: 1 }).await.unwrap();
    assert_eq!(page.letters[0].query.id, id("b"));
    let next = broker.dead_letters(Some("k"), Page { after: page.next.unwrap(), size: 1 }).await.unwrap();
    assert_eq!((next.letters[0].query.id.clone(), next.next), (id("c"), None));
    assert!(broker.dead_letters(Some("other"), Page { after: 0, size: 9 }).await.unwrap().letters.is_empty());
    let letter = broker.dead_letter(&id("b")).await.unwrap();
    assert_eq!((letter.failures.len(), letter.failures[0].attempt), (1, 1));

    broker.requeue(&id("b"), id("b2")).await.unwrap();
    assert!(broker.dead_letter(&id("b")).await.is_err());
    assert_eq!(broker.get(&id("b")).await.unwrap().requeued_as, Some(id("b2")));
    let second = broker.get(&id("b2")).await.unwrap();
    assert_eq!((second.requeued_from, second.attempts), (Some(id("b")), 0));
    broker.purge(&id("c")).await.unwrap();
    assert_eq!(broker.purge(&id("c")).await, Err(NoSuchDeadLetter(id("c")).into()));
    assert!(broker.get(&id("c")).await.is_err());
}

/// A broker with room for three events, and a query that has written two of them.
async fn nearly_full(overflow: Overflow) -> (Arc<MemoryBroker>, crate::broker::Lease) {
    let broker = broker_with(MemoryLimits { max_events: 3, overflow, ..LIMITS });
    broker.submit(query("a", 0)).await.unwrap();
    let mut lease = claim(&broker).await.unwrap().lease;
    lease.append(&mut vec![message(1), message(2)]).await.unwrap();
    (broker, lease)
}

#[tokio::test]
async fn unread_log_drops_its_oldest_events_at_once() {
    let (broker, mut lease) = nearly_full(Overflow::Fail).await;
    lease.append(&mut (3..100).map(message).collect()).await.unwrap();
    assert_eq!(broker.get(&id("a")).await.unwrap().first_sequence, 96);
}

#[tokio::test]
async fn slow_reader_stalls_the_worker_and_misses_nothing() {
    let (broker, mut lease) = nearly_full(Overflow::Gap).await;
    let mut reader = broker.read(&id("a"), 0).await.unwrap();
    let mut more = vec![message(3), message(4)];
    assert!(timeout(Duration::from_millis(5), lease.append(&mut more)).await.is_err(), "there is no room");
    assert_eq!(more.len(), 1, "what was not taken is still there");
    assert_eq!(next_events(&mut reader).await.unwrap().len(), 3);
    lease.append(&mut more).await.unwrap();
    assert_eq!(next_events(&mut reader).await.unwrap()[0].sequence, 3);
}

#[tokio::test]
async fn overflow_policies_apply_after_max_stall() {
    let (broker, mut lease) = nearly_full(Overflow::Gap).await;
    let mut reader = broker.read(&id("a"), 0).await.unwrap();
    lease.append(&mut vec![message(3), message(4)]).await.unwrap();
    assert!(matches!(next_events(&mut reader).await.unwrap()[0].body, EventBody::Gap { first: 0, last: 0 }));

    let (broker, mut lease) = nearly_full(Overflow::Fail).await;
    let _reader = broker.read(&id("a"), 0).await.unwrap();
    assert_eq!(lease.append(&mut vec![message(3), message(4)]).await, Err(AppendError::Overflow));

    let (broker, mut lease) = nearly_full(Overflow::Stall).await;
    let reader = broker.read(&id("a"), 0).await.unwrap();
    let mut more = vec![message(3), message(4)];
    assert!(timeout(Duration::from_millis(200), lease.append(&mut more)).await.is_err(), "it goes on waiting");
    drop(reader);
    lease.append(&mut more).await.unwrap();
    assert_eq!(broker.get(&id("a")).await.unwrap().first_sequence, 1);
}

#[tokio::test]
async fn waiting_queries_of_one_kind_are_rejected() {
    let broker = broker();
    let mut other = query("other", 0);
    other.spec.kind = "o".into();
    for query in [query("a", 0), query("b", 0), other] {
        broker.submit(query).await.unwrap();
    }
    assert_eq!(broker.reject_waiting("k", RejectReason::CircuitOpen, "no workers").await, 2);
    assert!(matches!(ending(&broker, "a").await, Outcome::Rejected { reason: RejectReason::CircuitOpen, .. }));
    assert_eq!((broker.waiting_count("k"), broker.waiting_count("o")), (0, 1));
}

#[tokio::test]
async fn log_bounded_by_bytes_waits_for_its_readers() {
    let broker = broker_with(MemoryLimits { max_bytes: 5, overflow: Overflow::Stall, ..LIMITS });
    broker.submit(query("q", 0)).await.unwrap();
    let mut lease = claim(&broker).await.unwrap().lease;
    let mut reader = broker.read(&id("q"), 0).await.unwrap();
    // Two bytes each: a third one does not fit, though there is a byte left.
    lease.append(&mut vec![message(10), message(11)]).await.unwrap();
    let mut third = vec![message(12)];
    assert!(timeout(LIMITS.max_stall * 2, lease.append(&mut third)).await.is_err());
    assert_eq!(next_events(&mut reader).await.unwrap().len(), 2);
    lease.append(&mut third).await.unwrap();
    let mut seen = next_events(&mut reader).await.unwrap();
    lease.finish(Vec::new(), Ending::plain(complete())).await.unwrap();
    seen.extend(next_events(&mut reader).await.unwrap());
    assert_eq!(seen.iter().map(|event| event.sequence).collect::<Vec<_>>(), [2, 3], "nothing is missing");
}

#[tokio::test]
async fn final_event_pushes_nothing_out() {
    let (broker, mut lease) = nearly_full(Overflow::Stall).await;
    let mut reader = broker.read(&id("a"), 0).await.unwrap();
    lease.append(&mut vec![message(3)]).await.unwrap();
    lease.finish(Vec::new(), Ending::plain(complete())).await.unwrap();
    let events = next_events(&mut reader).await.unwrap();
    assert_eq!(events.iter().map(|event| event.sequence).collect::<Vec<_>>(), [0, 1, 2, 3], "{events:?}");
}

#[tokio::test]
async fn disabled_backpressure_waits_for_no_reader() {
    for overflow in [Overflow::Gap, Overflow::Stall, Overflow::Fail] {
        let (broker, mut lease) = nearly_full(overflow).await;
        let _reader = broker.read(&id("a"), 0).await.unwrap();
        lease.disable_backpressure();
        let mut more = vec![message(3), message(4)];
        assert_eq!(timeout(Duration::ZERO, lease.append(&mut more)).await, Ok(Ok(())), "at once");
    }
}
