//! Everything that can be wrong with a configuration, in the words that a person reads.

use std::fmt;

use thiserror::Error;

/// What is wrong at one place.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Problem {
    #[error("cannot be read: {0}")]
    Unreadable(String),
    #[error("is larger than {most}, more than any config file needs")]
    TooLarge { most: String },
    #[error("is not valid UTF-8")]
    NotUtf8,
    #[error("not valid TOML: {0}")]
    Syntax(String),

    #[error("unknown section; {0}")]
    UnknownSection(Hint),
    #[error("unknown key; {0}")]
    UnknownKey(Hint),
    #[error("unknown variable; {0}")]
    UnknownVariable(Hint),
    #[error("could mean {what} `{first}` or {what} `{second}`; set the key in the file instead")]
    AmbiguousVariable { what: &'static str, first: String, second: String },
    #[error("`{0}` is not supported by this version of remuda; remove it")]
    NotSupported(String),

    #[error("must be a section, written [{header}], not {got}")]
    NotASection { header: String, got: &'static str },
    #[error("is required: {0}")]
    Missing(&'static str),
    #[error("no kind of worker is defined: add a [kinds.NAME] section with a `command`")]
    NoKinds,
    #[error("is not a kind's name: use 1 to 63 of a-z, 0-9, _ and -, starting with a letter")]
    KindName,

    #[error("must be {wanted}, not {got}")]
    WrongType { wanted: &'static str, got: &'static str },
    #[error("a bare number has no unit: write \"{write}\"")]
    NoUnit { write: String },
    #[error("{text} is not a duration: write one like \"5s\", \"1m 30s\" or \"200ms\"")]
    NotADuration { text: String },
    #[error("{text} is not a URL: write one like \"http://127.0.0.1:4317\"")]
    NotAUrl { text: String },
    #[error("{text} is not a size: write one like \"512MiB\" or \"64KB\"")]
    NotASize { text: String },
    #[error(
        "{text} is not an address: write an IP address and port, like \"127.0.0.1:50051\" or \
         \"[::]:50051\", or the path of a Unix socket, like \"/run/remuda.sock\""
    )]
    NotAListenAddress { text: String },
    #[error("{text} is not an address: write an IP address and port, like \"127.0.0.1:9090\", or \"off\"")]
    NotAnHttpAddress { text: String },
    #[error("{text} is not one of {choices}")]
    NotAChoice { text: String, choices: String },
    #[error("must be one of {choices}, not {got}")]
    NotAWord { choices: String, got: &'static str },
    #[error("is of no use without `{other}`: set both or none")]
    Needs { other: &'static str },
    #[error("{text} means nothing here: write \"{write}\"")]
    OtherWord { text: String, write: &'static str },
    #[error("{text} is not a Unix user name")]
    NotAUser { text: String },
    #[error("{text} is not a Unix group name")]
    NotAGroup { text: String },
    #[error("{text} is not a variable's name: it must not be empty or hold `=` or a NUL character")]
    NotAVariableName { text: String },

    #[error("must not be empty")]
    Empty,
    #[error("must not hold a NUL character")]
    Nul,
    #[error("must be from {least} to {most}, but is {got}")]
    OutOfRange { least: String, most: String, got: String },
    #[error("must be whole seconds")]
    NotWholeSeconds,
    #[error("{text} is {bytes} bytes long; at most {most} are allowed")]
    TooLong { text: String, bytes: usize, most: usize },
    #[error("lists {got}; at most {most} are allowed")]
    TooMany { got: usize, most: usize },
    #[error("{path} is {bytes} bytes long; at most {most} {reason}")]
    PathTooLong { path: String, bytes: usize, most: usize, reason: &'static str },

    #[error("{value} is more than `{other}`, which is {limit}")]
    Exceeds { value: String, other: &'static str, limit: String },
    #[error("{value} is not less than `{other}`, which is {limit}")]
    NotLess { value: String, other: &'static str, limit: String },
    #[error("is the address of {other} too; each needs its own")]
    SameAddress { other: &'static str },
    #[error("{text} is listed twice")]
    ListedTwice { text: String },
    #[error("{text} is already served by kind `{kind}` ({place}); a type belongs to one kind")]
    TypeTaken { text: String, kind: String, place: String },
    #[error("no kind serves this type; served are {served}")]
    UnservedType { served: String },
    #[error("has no effect while `strategy` is \"reject\": write strategy = \"retry\", or remove `attempts`")]
    UnusedAttempts,
    #[error("must be true with Landlock: remove it, or `landlock_read` and `landlock_write`")]
    LandlockPrivileges,
    #[error("is \"{text}\", but a keyed kind is always \"strict\": remove `affinity`, or `keyed`")]
    KeyedAffinity { text: &'static str },
    #[error("the kinds' `min` add up to {sum} ({parts}), more than pool.max_workers, which is {limit}")]
    MinSum { sum: usize, parts: String, limit: usize },
    #[error(
        "is required, because pool.memory_budget is {budget}: write what one worker needs, like \
         memory = \"512MiB\", or remove the budget"
    )]
    MemoryMissing { budget: String },
    #[error(
        "one worker needs {memory}, more than pool.memory_budget, which is {budget}, so none could \
         ever start: lower `memory`, or raise the budget"
    )]
    OverBudget { memory: String, budget: String },
    #[error(
        "the kinds' `min` workers need {sum} together ({parts}), more than pool.memory_budget, which \
         is {budget}: lower `min` or `memory`, or raise the budget"
    )]
    MemorySum { sum: String, parts: String, budget: String },
    #[error("names that start with REMUDA_ are set by remuda itself")]
    ReservedVariable,
}

/// What somebody who wrote an unknown name may have meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hint {
    DidYouMean(String),
    /// The key exists, in these other sections.
    BelongsIn(Vec<&'static str>),
    /// Nothing is close; these are known.
    Known(Vec<&'static str>),
    /// How such names are formed, where listing them all would be too long.
    Form(&'static str),
}

impl fmt::Display for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DidYouMean(name) => write!(f, "did you mean `{name}`?"),
            Self::BelongsIn(sections) => write!(f, "it belongs in [{}]", sections.join("] or [")),
            Self::Known(names) => write!(f, "known are {}", names.join(", ")),
            Self::Form(form) => write!(f, "write {form}"),
        }
    }
}
