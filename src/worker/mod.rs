//! One worker: its process, its connection, its state, and the record of its end.

mod conclusion;
mod connection;
mod driver;
mod driver_event;
mod end_reason;
mod host;
mod liveness;
#[cfg(test)]
#[cfg(feature = "model-check")]
pub(crate) mod model_check;
mod observer;
mod outbox;
mod output;
mod pool_worker;
mod process;
mod recycling;
mod running;
mod runtime_dir;
mod sandbox;
mod serve;
mod snapshot;
mod start;
mod stats;
mod stop;
#[cfg(test)]
mod tests;
mod usage;

pub use conclusion::Conclusion;
pub use driver::{SpawnContext, run};
pub use host::Host;
pub use observer::{WorkerObserver, WorkerStateChange};
pub use pool_worker::{PoolWorker, StopMode, WorkerSpec};
pub use process::Spawner;
pub use runtime_dir::RuntimeDir;
pub use sandbox::{FileAccess, GUARD_ARGUMENT, LAUNCH_ARGUMENT, probe_files, run_guardian, run_launcher};
pub use snapshot::{ReadyInfo, WorkerSnapshot, WorkerStats};
pub use usage::UsageSample;
