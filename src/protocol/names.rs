//! The names on the wire: the types of worker frames and their fields.

use crate::state::named_enum;

named_enum! {
    /// The type of a frame that a worker sends.
    pub enum FrameType {
        Ready => "ready",
        Session => "session",
        Message => "message",
        Complete => "complete",
        Error => "error",
        Heartbeat => "heartbeat",
        HealthOk => "health_ok",
        ShutdownAck => "shutdown_ack",
    }
}

named_enum! {
    /// Every field of a worker frame that has a meaning.
    pub(super) enum Field {
        Type => "type",
        RequestId => "requestId",
        Content => "content",
        SessionId => "sessionId",
        Result => "result",
        Error => "error",
        Code => "code",
        Retryable => "retryable",
        Details => "details",
        Protocol => "protocol",
        Name => "name",
        Version => "version",
        Capabilities => "capabilities",
        Heartbeat => "heartbeat",
        State => "state",
        Memory => "memory",
        Cpu => "cpu",
        Tasks => "tasks",
        Uptime => "uptime",
        QueriesProcessed => "queriesProcessed",
    }
}

impl FrameType {
    /// All names in one line, for the error about an unknown one.
    pub(super) fn all_names() -> String {
        Self::ALL.iter().map(|frame_type| frame_type.name()).collect::<Vec<_>>().join(", ")
    }
}
