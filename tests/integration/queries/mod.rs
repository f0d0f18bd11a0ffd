//! Queries: input, output and endings.

mod arguments;
mod cancel_races;
mod execute;
mod load;
mod recovery;
mod slow_readers;
mod streaming;
