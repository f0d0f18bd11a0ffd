//! The choice of a kind and a worker for each query, and the order of the queue.

mod affinity;
mod balance;
mod keys;
mod queue;
mod rotation;
mod routing;
