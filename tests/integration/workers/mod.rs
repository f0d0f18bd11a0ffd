//! Workers: how they start, fail and end.

mod chaos;
mod examples;
mod failures;
mod lifecycle;
