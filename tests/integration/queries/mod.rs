//! Queries: what goes in, what comes out, how they end.

mod arguments;
mod cancel_races;
mod execute;
mod load;
mod recovery;
mod slow_readers;
mod streaming;
