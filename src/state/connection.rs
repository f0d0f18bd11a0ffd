//! The connection between the pool and one worker.

use super::states::states;

states! {
    /// State of the connection to a worker. Sending or receiving a frame is not a transition.
    pub enum ConnectionState as "connection" {
        /// There is no socket: not yet, or no longer.
        Disconnected => "disconnected",
        /// The socket waits for the worker to connect.
        Connecting => "connecting",
        /// Frames can pass both ways.
        Connected => "connected",
    }
    allowed {
        Disconnected => Connecting,
        Connecting   => Connected | Disconnected,
        Connected    => Disconnected,
    }
}

#[cfg(test)]
mod tests {
    use super::ConnectionState;
    use crate::state::matrix::assert_transitions;

    #[test]
    fn connection_transitions_are_as_drawn() {
        assert_transitions::<ConnectionState>(
            "
                          disconnected connecting connected
            disconnected       .           x          .
            connecting         x           .          x
            connected          x           .          .
            ",
        );
    }
}
