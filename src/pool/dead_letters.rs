//! What a person does with dead letters: lets them live again, or forgets them.

use thiserror::Error;

use crate::{
    broker::{DeadLetterError, Page},
    model::QueryId,
};

use super::{Pool, RequestError, Unroutable};

/// How many letters are looked at at once.
const PAGE: usize = 256;

/// Which dead letters are meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selection {
    Some(Vec<QueryId>),
    /// All of them, or all of one kind.
    All {
        kind: Option<String>,
    },
}

/// Why a dead letter does not live again.
#[derive(Debug, Error)]
pub enum RequeueError {
    #[error(transparent)]
    Letter(#[from] DeadLetterError),
    /// The pool would not take its query if it came today.
    #[error(transparent)]
    NotTaken(#[from] RequestError),
}

impl Pool {
    /// Submits the letters' queries afresh. Gives each old id with its new one.
    pub async fn requeue(&self, selection: Selection) -> Result<Vec<(QueryId, QueryId)>, RequeueError> {
        self.inner.is_open()?;
        let mut requeued = Vec::new();
        let outcome = self.requeue_each(selection, &mut requeued).await;
        self.inner.dispatch_all().await;
        outcome.map(|()| requeued)
    }

    async fn requeue_each(
        &self,
        selection: Selection,
        requeued: &mut Vec<(QueryId, QueryId)>,
    ) -> Result<(), RequeueError> {
        let all = matches!(selection, Selection::All { .. });
        for id in self.selected(selection).await? {
            match self.requeue_one(&id).await {
                Ok(new_id) => requeued.push((id, new_id)),
                Err(RequeueError::Letter(error)) => tolerate(error, all)?,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    async fn requeue_one(&self, id: &QueryId) -> Result<QueryId, RequeueError> {
        let kind = self.inner.broker.dead_letter(id).await?.query.kind;
        if self.inner.kinds.named(&kind).is_none_or(|kind| kind.is_removed()) {
            let gone = Unroutable::NoSuchKind { kind: kind.to_string(), known: self.inner.known_kinds() };
            return Err(RequestError::from(gone).into());
        }
        let new_id = QueryId::generate();
        self.inner.broker.requeue(id, new_id.clone()).await?;
        Ok(new_id)
    }

    /// Forgets the letters, and says how many there were.
    pub async fn purge(&self, selection: Selection) -> Result<usize, DeadLetterError> {
        let all = matches!(selection, Selection::All { .. });
        let mut purged = 0;
        for id in self.selected(selection).await? {
            match self.inner.broker.purge(&id).await {
                Ok(()) => purged += 1,
                Err(error) => tolerate(error, all)?,
            }
        }
        Ok(purged)
    }

    async fn selected(&self, selection: Selection) -> Result<Vec<QueryId>, DeadLetterError> {
        let kind = match selection {
            Selection::Some(ids) => return Ok(ids),
            Selection::All { kind } => kind,
        };
        let mut ids = Vec::new();
        let mut after = Some(0);
        while let Some(from) = after {
            let page = self.inner.broker.dead_letters(kind.as_deref(), Page { after: from, size: PAGE }).await?;
            ids.extend(page.letters.into_iter().map(|letter| letter.query.id));
            after = page.next;
        }
        Ok(ids)
    }
}

/// Whoever wants all letters does not mind one that has gone in the meantime.
fn tolerate(error: DeadLetterError, all: bool) -> Result<(), DeadLetterError> {
    match error {
        DeadLetterError::NoSuchDeadLetter(_) if all => Ok(()),
        error => Err(error),
    }
}
