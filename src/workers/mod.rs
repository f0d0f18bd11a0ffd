//! The built-in workers, which run as processes of their own.

pub mod echo;
