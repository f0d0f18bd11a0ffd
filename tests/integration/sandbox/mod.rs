//! Workers are kept apart from the server and from each other.

mod capabilities;
pub(crate) mod confinement;
mod neighbours;
