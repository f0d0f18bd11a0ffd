//! The order of arrival after evictions.

use std::collections::BTreeSet;

use super::*;

#[tokio::test]
async fn remaining_queries_are_listed_after_any_evictions() {
    let broker = broker_with(MemoryLimits { max_ended: 0, ..LIMITS });
    let mut random = fastrand::Rng::with_seed(7);
    let mut expected = BTreeSet::new();
    let name = |number: u32| format!("q{number:04}");
    for number in 0..900 {
        broker.submit(query(&name(number), 0)).await.unwrap();
        expected.insert(name(number));
        // Mostly one of the last, as in a server; now and then one that has waited long, until holes are cleared out.
        let back = if random.u8(..) < 200 { 8 } else { 900 };
        let gone = name(number.saturating_sub(random.u32(..back)));
        if broker.cancel(&id(&gone), "no longer wanted").await.is_ok() {
            expected.remove(&gone);
        }
        if number % 50 == 49 {
            let all = Page { after: 0, size: 1_000 };
            let listed = broker.list(&QueryFilter::default(), all).await.unwrap().queries;
            let listed: Vec<String> = listed.iter().map(|query| query.id.to_string()).collect();
            assert!(listed.iter().eq(&expected), "after {number}: {listed:?}");
        }
    }
    let places = broker.index.lock().places();
    assert!(places < 2 * expected.len() + 20, "{places} places for {}", expected.len());
}
