//! The configuration: read from a file, the environment and the flags, checked, and shown again.
//!
//! A [`Config`] is always valid: each value has a type that fits it, and every rule between values has been
//! checked. All mistakes are reported at once, each with its location.
//!
//! Each key is declared once, in `keys/`, one file for each section: its name, type, format, default, effect
//! in a reload, and documentation. The reader, `config show`, the example file, the environment variables and
//! the comparison for a reload follow from the declarations. A file here uses only files listed before it.

mod error;
mod text;

mod tree;

mod format;
mod numbers;
mod strings;

mod schema;

mod reader;

mod keys;

mod kinds;
mod unknown;

mod model;

mod layers;
mod load;

mod environment;
mod show;

mod changes;

#[cfg(test)]
mod tests;

pub use changes::{ValueChange, changes};
pub use environment::worker_environment;
pub use error::ConfigErrors;
pub use keys::confinement::Confinement;
pub use keys::dead_letters::DeadLettersConfig;
pub use keys::kind::{Affinity, Balance, KindConfig, Transport};
pub use keys::pool::{Eviction, PoolConfig};
pub use keys::queue::QueueConfig;
pub use keys::recovery::{Recovery, RecoveryConfig};
pub use keys::results::{Overflow, ResultsConfig};
pub use keys::retry::RetryConfig;
pub use keys::server::{Compression, ServerConfig, TlsFiles};
pub use load::{ConfigSource, Overrides, environment};
pub use model::Config;
pub use schema::Effect;
pub use show::{example, show};
pub use strings::{Listen, WorkDir};
