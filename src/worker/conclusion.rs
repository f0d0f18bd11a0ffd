//! The way in which a worker was done with its query.

use std::{borrow::Cow, sync::Arc, time::Duration};

use crate::{
    model::{DeathCertificate, Failure, StopStage},
    protocol::JsonText,
};

#[derive(Debug)]
pub enum Conclusion {
    Complete {
        result: JsonText,
    },
    /// The worker reported an error and lives on.
    Reported(Box<Failure>),
    /// Someone cancelled the query.
    Cancelled {
        reason: Arc<str>,
        stage: StopStage,
    },
    TimedOut {
        limit: Duration,
        stage: StopStage,
        certificate: Option<Arc<DeathCertificate>>,
    },
    /// The worker ended while it ran the query, by itself or because the server stops.
    Died(Arc<DeathCertificate>),
    /// The query's readers did not keep up with it.
    Overflowed,
    /// The worker gave up the query because the server stops.
    CutShort,
    /// Another replica runs the query now.
    LeaseLost,
}

impl Conclusion {
    /// The failure in words, if it is one.
    pub(super) fn failure_text(&self) -> Option<Cow<'_, str>> {
        Some(match self {
            Self::Complete { .. } | Self::Cancelled { .. } => return None,
            Self::Reported(failure) => Cow::Borrowed(&failure.message),
            Self::TimedOut { limit, .. } => format!("ran longer than {limit:?}").into(),
            Self::Died(certificate) => certificate.summary().into(),
            Self::Overflowed => "its readers did not keep up".into(),
            Self::CutShort => "the server stops".into(),
            Self::LeaseLost => "it runs elsewhere".into(),
        })
    }
}
