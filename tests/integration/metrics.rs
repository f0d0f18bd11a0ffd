//! The metrics: the page that lists them, how many series there are, and that each moves when its thing happens.

use std::path::Path;

/// With `UPDATE_METRICS` set the page is written instead of compared.
#[test]
fn the_metrics_page_is_what_the_table_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/metrics.md");
    let page = remuda::metrics::page(&remuda::api::methods());
    if std::env::var_os("UPDATE_METRICS").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    let how = "UPDATE_METRICS=1 cargo test the_metrics_page";
    assert!(page == written, "docs/metrics.md is out of date; write it with: {how}");
}
