//! Streams that are asked for and never read.

use std::time::{Duration, Instant};

use crate::{
    harness::eventually,
    hostile::attacks::{ask_for_all, much_to_read},
    hostile::victim::Victim,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_that_are_never_read_cost_a_bounded_amount_and_are_dropped() {
    let limits = "keepalive_interval = \"1s\"\nkeepalive_timeout = \"2s\"";
    let mut victim = Victim::start(limits, "").await;
    let results = much_to_read(&mut victim).await;
    let unread = ask_for_all(&victim.server.grpc, &results);
    let begun = Instant::now();
    let mut most = 0;
    let enough = |victim: &Victim| {
        most = most.max(victim.grown());
        begun.elapsed() > Duration::from_secs(2)
    };
    victim.serves_others_until(enough).await;
    // Each holds a batch of events and what HTTP/2 has buffered of it, and none the 8 MiB that it could have.
    assert!(most < 100 << 20, "{most} bytes");
    // They do not answer when asked whether they live, so they are dropped, though they have not gone.
    eventually("unread connections to be dropped", || (victim.more_descriptors() == 0).then_some(()));
    drop(unread);
    victim.recovers().await;
}
