//! The configuration: read from a file, the environment and the flags, checked, and shown again.
//!
//! A [`Config`] that exists is right: each value is parsed into a type that fits it, and every rule
//! that ties two values together has been checked. Whoever made mistakes is told all of them at
//! once, each with its place.
//!
//! Each key stands once in the table in `keys/`, its default beside the reason for it. Reading,
//! showing, the names of the environment variables and the commented example file all come from
//! that table.

mod budget;
mod changes;
mod choice;
mod confinement;
mod doors;
mod environment;
mod error;
mod example;
mod keys;
mod kind;
mod kinds;
mod layers;
mod load;
mod model;
mod page;
mod problem;
mod reader;
mod recovery;
mod section;
mod sections;
mod show;
mod suggest;
mod tree;
mod values;

#[cfg(test)]
mod tests;

pub use changes::{Change, Changes, Effect, changes};
pub use confinement::{Confinement, WorkDir};
pub use environment::worker_environment;
pub use error::{ConfigErrors, Mistake, Place};
pub use example::example;
pub use load::{Overrides, Source, environment};
pub use model::{
    Affinity, BASE_ENVIRONMENT, Balance, Compression, Config, DeadLettersConfig, Eviction, KindConfig, Listen,
    Overflow, PoolConfig, QueueConfig, Recovery, RecoveryConfig, ResultsConfig, RetryConfig, ServerConfig, TlsFiles,
    Transport,
};
pub use problem::{Hint, Problem};
pub use show::show;
