//! The load generator: makes queries, runs them many at a time in rounds, and measures how long they take.

mod drive;
mod figures;
mod payload;
mod tally;

pub use drive::{Call, Extent, Load, Target};
pub use figures::{ErrorFigures, Figures, Percentiles};
pub use payload::{PayloadTooSmall, payload};
pub use tally::Round;

pub use crate::echo::SIZES;
