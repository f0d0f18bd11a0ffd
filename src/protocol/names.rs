//! The names that may stand on the wire: the types of worker frames and their fields.

/// Declares an enum together with the one table that maps it to its names on the wire and back.
macro_rules! wire_names {
    (
        $(#[$attribute:meta])*
        $visibility:vis enum $enum:ident { $($variant:ident = $name:literal,)+ }
    ) => {
        $(#[$attribute])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        $visibility enum $enum { $($variant,)+ }

        impl $enum {
            /// Every value, in the order of its declaration.
            $visibility const ALL: &[Self] = &[$(Self::$variant,)+];

            /// The name as it stands on the wire.
            #[must_use]
            $visibility const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }

            /// The value that a name on the wire stands for.
            #[must_use]
            $visibility fn from_name(name: &str) -> Option<Self> {
                match name {
                    $($name => Some(Self::$variant),)+
                    _ => None,
                }
            }
        }
    };
}

wire_names! {
    /// The type of a frame that a worker sends.
    pub enum FrameType {
        Ready = "ready",
        Session = "session",
        Message = "message",
        Complete = "complete",
        Error = "error",
        Heartbeat = "heartbeat",
        HealthOk = "health_ok",
        ShutdownAck = "shutdown_ack",
    }
}

wire_names! {
    /// Every field that some worker frame gives a meaning to.
    pub(super) enum Field {
        Type = "type",
        RequestId = "requestId",
        Content = "content",
        SessionId = "sessionId",
        Result = "result",
        Error = "error",
        Code = "code",
        Retryable = "retryable",
        Details = "details",
        Protocol = "protocol",
        Name = "name",
        Version = "version",
        Capabilities = "capabilities",
        Heartbeat = "heartbeat",
        State = "state",
        Memory = "memory",
        Cpu = "cpu",
        Tasks = "tasks",
        Uptime = "uptime",
        QueriesProcessed = "queriesProcessed",
    }
}

impl FrameType {
    /// All names in one line, for the error about a name that is not among them.
    pub(super) fn known() -> String {
        Self::ALL.iter().map(|known| known.name()).collect::<Vec<_>>().join(", ")
    }
}

impl std::fmt::Display for FrameType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
