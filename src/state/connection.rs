//! The connection between the pool and one worker.

use super::states::states;

states! {
    /// Whether frames can pass. Sending or receiving one is not a transition.
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
    fn every_pair_of_connection_states_is_allowed_or_refused_as_drawn() {
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
