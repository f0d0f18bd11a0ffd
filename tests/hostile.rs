//! Clients that mean harm, over real sockets: the server stays up, serves everyone else meanwhile, and gives back what it
//! was made to take.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a failed test says where; metrics are small whole numbers"
)]

#[allow(dead_code, unused_imports, reason = "other tests use the rest")]
mod harness;
mod hostile {
    mod attacks;
    mod connections;
    mod floods;
    mod loris;
    mod silence;
    mod unread;
    mod victim;
}
