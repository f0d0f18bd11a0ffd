//! The queue when it is full, and what is left of it when it was.

use super::*;

#[tokio::test]
async fn full_queue_sheds_the_newest_of_the_worst_priority() {
    let broker = broker_with(MemoryLimits { max_queries: 4, ..LIMITS });
    for (name, priority) in [("a", 5), ("b", 9), ("c", 9)] {
        broker.submit(query(name, priority)).await.unwrap();
    }
    let mut elsewhere = query("elsewhere", 9);
    elsewhere.spec.kind = "other".into();
    broker.submit(elsewhere).await.unwrap();

    let full = SubmitError::QueueFull { waiting: 4, limit: 4 };
    assert_eq!(broker.submit(query("d", 9)).await, Err(full), "no worse one waits");
    for (urgent, victim) in [("u1", "elsewhere"), ("u2", "c"), ("u3", "b"), ("u4", "a")] {
        broker.submit(query(urgent, 1)).await.unwrap();
        let outcome = ending(&broker, victim).await;
        let Outcome::Rejected { reason: RejectReason::Shed, message } = outcome else { panic!("{outcome:?}") };
        assert!(message.contains("priority 1") && message.contains("queue.max_queries"), "{message}");
        assert_eq!(broker.waiting.queries.load(SeqCst), 4);
    }
    assert!(broker.submit(query("u5", 1)).await.is_err());
    assert_eq!(claimed_id(&broker).await.as_deref(), Some("u1"));
}

#[tokio::test]
async fn attempted_query_is_not_pushed_out() {
    let broker = broker_with(MemoryLimits { max_queries: 1, ..LIMITS });
    broker.submit(query("tried", 9)).await.unwrap();
    let lease = claim(&broker).await.unwrap().lease;
    let failure = Failure::new(FailureReason::WorkerDied, "died");
    let retrying = Retrying { failed_attempt: 1, max_attempts: 2, delay: Duration::ZERO, failure };
    lease.finish(Vec::new(), Ending::Retry(retrying)).await.unwrap();
    assert!(broker.submit(query("urgent", 0)).await.is_err());
    assert_eq!(claimed_id(&broker).await.as_deref(), Some("tried"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn queue_limit_holds_under_concurrent_submits() {
    let broker = broker_with(MemoryLimits { max_queries: 50, max_ended: 10_000, ..LIMITS });
    let submit = |task: u32| {
        let broker = broker.clone();
        tokio::spawn(async move {
            for n in 0..200 {
                let _ = broker.submit(query(&format!("{task}-{n}"), (task + n) % 5)).await;
                assert!(broker.waiting.queries.load(SeqCst) <= 50);
            }
        })
    };
    for task in (0..8).map(submit).collect::<Vec<_>>() {
        task.await.unwrap();
    }
    assert_eq!((broker.waiting_count("k"), broker.open_count("k")), (50, 50));
    assert_eq!(broker.kind_state_or_create(&"k".into()).queue.drain().len(), 50);
}

/// Fewer than in earnest, since a debug build is slow; nothing here depends on the number.
const MANY: usize = 20_000;

#[tokio::test]
async fn cancelled_queries_leave_nothing_behind() {
    let broker = broker_with(MemoryLimits { max_queries: MANY, max_ended: 10, ..LIMITS });
    for n in 0..MANY {
        let mut new = query(&format!("q{n}"), u32::try_from(n % 3).unwrap());
        new.spec.owner = (n % 2 == 0).then(|| format!("owner {n}").into());
        new.lane = (n % 5 == 0).then(|| format!("lane {}", n % 1_000).into());
        broker.submit(new).await.unwrap();
    }
    let queue = &broker.kind_state_or_create(&"k".into()).queue;
    assert!(queue.size() >= MANY);
    // From the end, so that none is met at the front of a line.
    for n in (1..MANY).rev() {
        broker.cancel(&id(&format!("q{n}")), "").await.unwrap();
    }
    assert_eq!((broker.waiting_count("k"), broker.open_count("k")), (1, 1));
    assert!(queue.size() < 400, "{}", queue.size());
    assert_eq!(claimed_id(&broker).await.as_deref(), Some("q0"));
}

#[tokio::test]
async fn long_running_query_does_not_keep_the_entries_behind_it() {
    let broker = broker_with(MemoryLimits { max_ended: 10, ..LIMITS });
    broker.submit(query("long", 0)).await.unwrap();
    let long = claim(&broker).await.unwrap();
    for n in 0..2_000 {
        broker.submit(query(&format!("q{n}"), 0)).await.unwrap();
        claimed_id(&broker).await.unwrap();
    }
    assert!(broker.index.lock().places() < 50);
    let page = broker.list(&QueryFilter::default(), Page { after: 0, size: 3 }).await.unwrap();
    let names: Vec<_> = page.queries.iter().map(|query| query.id.as_str()).collect();
    assert_eq!(names, ["long", "q1990", "q1991"]);
    drop(long);
}

#[tokio::test]
async fn query_that_ended_before_it_was_queued_is_not_counted() {
    let broker = broker();
    broker.submit(query("a", 0)).await.unwrap();
    let entry = broker.find(&id("a")).unwrap();
    broker.cancel(&id("a"), "").await.unwrap();
    entry.meta.kind_state.queue.push(&entry, Instant::now());
    assert_eq!(broker.open_count("k"), 0);
    assert!(!broker.reject(&id("a"), RejectReason::Busy, "").await);
    broker.submit(query("b", 0)).await.unwrap();
    assert_eq!(broker.unfinished_count_of("k"), 1);
    assert!(broker.reject(&id("b"), RejectReason::Busy, "no worker is ready").await);
    assert_eq!((broker.open_count("k"), broker.unfinished_count_of("k")), (0, 0));
}

#[tokio::test]
async fn shed_candidate_is_found_only_within_the_scan_limit() {
    let broker = broker_with(MemoryLimits { max_queries: 2_101, ..LIMITS });
    let failure = Failure::new(FailureReason::WorkerDied, "died");
    let retrying = Retrying { failed_attempt: 1, max_attempts: 2, delay: Duration::ZERO, failure };
    broker.submit(query("untried", 9)).await.unwrap();
    for n in 0..2_100 {
        broker.submit(query(&format!("q{n}"), 8)).await.unwrap();
    }
    let mut leases = Vec::new();
    for _ in 0..2_100 {
        leases.push(claim(&broker).await.unwrap().lease);
    }
    for lease in leases {
        lease.finish(Vec::new(), Ending::Retry(retrying.clone())).await.unwrap();
    }
    broker.submit(query("urgent", 0)).await.unwrap();
    assert_eq!(ending(&broker, "untried").await.state(), QueryState::Rejected);
    // Attempted queries are never pushed out, and only some of them are looked at.
    broker.submit(query("another", 0)).await.unwrap_err();
    let newest = broker.kind_state_or_create(&"k".into()).queue.shed_candidate();
    assert!(newest.is_none(), "{newest:?}");
}

fn weighing(id: &str, priority: u32, bytes: usize) -> NewQuery {
    let mut query = query(id, priority);
    query.spec.payload = json(&format!("\"{}\"", "x".repeat(bytes - 2)));
    query
}

fn waiting_bytes(broker: &Arc<MemoryBroker>) -> usize {
    broker.waiting.bytes.load(SeqCst)
}

#[tokio::test]
async fn waiting_payloads_stay_within_their_byte_limit() {
    let broker = broker_with(MemoryLimits { max_waiting_bytes: 100, ..LIMITS });
    broker.submit(weighing("large", 5, 500)).await.unwrap();
    let claim = claim(&broker).await.unwrap();
    assert_eq!(waiting_bytes(&broker), 0, "what runs does not wait");
    claim.lease.release().await;
    assert_eq!(waiting_bytes(&broker), 500);
    assert_eq!(
        broker.submit(weighing("beside", 5, 10)).await,
        Err(SubmitError::QueueBytesFull { bytes: 500, payload: 10, limit: 100 })
    );
    broker.submit(weighing("urgent", 1, 60)).await.unwrap();
    let outcome = ending(&broker, "large").await;
    let Outcome::Rejected { reason: RejectReason::Shed, message } = outcome else { panic!("{outcome:?}") };
    assert!(message.contains("queue.max_bytes"), "{message}");
    broker.submit(weighing("small", 9, 40)).await.unwrap();
    assert!(broker.submit(weighing("larger-than-small", 1, 41)).await.is_err());
    assert_eq!(waiting_bytes(&broker), 100);
    broker.cancel(&id("small"), "").await.unwrap();
    broker.reject_waiting("k", RejectReason::Shutdown, "").await;
    assert_eq!(waiting_bytes(&broker), 0);
}

#[tokio::test]
async fn ended_queries_stay_within_their_byte_limit() {
    let broker = broker_with(MemoryLimits { max_ended_bytes: 1_000, max_dead_bytes: 1_000, ..LIMITS });
    let run = async |name: &str, dead_letter: bool| {
        broker.submit(weighing(name, 5, 100)).await.unwrap();
        let lease = claim(&broker).await.unwrap().lease;
        let outcome = if dead_letter {
            Outcome::Error(Box::new(Failure::new(FailureReason::WorkerDied, "x".repeat(100))))
        } else {
            Outcome::Complete { result: json(&format!("\"{}\"", "x".repeat(98))) }
        };
        let message = Output::Message(json(&format!("\"{}\"", "x".repeat(98))));
        lease.finish(vec![message], Ending::Over { outcome, dead_letter }).await.unwrap();
    };
    for n in 0..10 {
        run(&format!("q{n}"), false).await;
        run(&format!("d{n}"), true).await;
    }
    // Of 300 bytes each; a dead letter keeps its last failure twice, in its events and beside them.
    let known: Vec<bool> = (0..10).map(|n| broker.find(&id(&format!("q{n}"))).is_ok()).collect();
    assert_eq!(known, [vec![false; 7], vec![true; 3]].concat());
    let dead = broker.dead_letters(None, Page { after: 0, size: 100 }).await.unwrap().letters;
    assert_eq!(dead.iter().map(|letter| letter.query.id.to_string()).collect::<Vec<_>>(), ["d8", "d9"]);
    broker.requeue(&id("d8"), id("again")).await.unwrap();
    broker.purge(&id("d9")).await.unwrap();
    broker.expire(Instant::now() + Duration::from_hours(2));
    assert_eq!(broker.index.lock().kept_bytes(), (0, 0));
}
