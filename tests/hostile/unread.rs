//! Streams that are asked for and never read.

use crate::hostile::{
    attacks::{ask_for_all, much_to_read},
    victim::Victim,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_that_are_never_read_cost_a_bounded_amount_and_are_dropped() {
    let limits = "keepalive_interval = \"1s\"\nkeepalive_timeout = \"2s\"";
    let mut victim = Victim::start(limits, "").await;
    let results = much_to_read(&mut victim).await;
    let unread = ask_for_all(&victim.server.grpc, &results);
    let mut most = 0;
    // They answer no ping, so they are dropped, though their client has not gone.
    let are_dropped = |victim: &Victim| {
        most = most.max(victim.grown());
        victim.more_descriptors() == 0
    };
    victim.serves_others_until(are_dropped).await;
    // Each holds a batch of events and what HTTP/2 has buffered of it, and none the 8 MiB that it could have.
    assert!(most < 100 << 20, "{most} bytes");
    drop(unread);
    victim.recovers().await;
}
