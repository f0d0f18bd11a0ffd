//! Operations on dead letters: requeue and purge.

use thiserror::Error;

use crate::{
    broker::{DeadLetterError, Page},
    model::QueryId,
};

use super::{Operations, RequestError, RoutingError};

/// Dead letters fetched from the broker at once.
const PAGE_SIZE: usize = 256;

/// The dead letters that an operation is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeadLetterSelection {
    Ids(Vec<QueryId>),
    /// All of them, or all of one kind.
    All {
        kind: Option<String>,
    },
}

#[derive(Debug, Error)]
pub enum RequeueError {
    #[error(transparent)]
    Letter(#[from] DeadLetterError),
    /// The pool does not accept the query now.
    #[error(transparent)]
    Refused(#[from] RequestError),
}

impl Operations {
    /// Submits the queries of dead letters anew, up to the first that fails. Returns each old id with its new one.
    pub async fn requeue(&self, selection: DeadLetterSelection) -> Result<Vec<(QueryId, QueryId)>, RequeueError> {
        self.admission.ensure_admitting()?;
        let all = matches!(selection, DeadLetterSelection::All { .. });
        let mut requeued = Vec::new();
        let mut failure = None;
        for id in self.selected_ids(selection).await? {
            match self.requeue_one(&id).await {
                Ok(new_id) => requeued.push((id, new_id)),
                Err(RequeueError::Letter(DeadLetterError::NoSuchDeadLetter(_))) if all => {}
                Err(error) => {
                    failure = Some(error);
                    break;
                }
            }
        }
        self.dispatcher.dispatch_all().await;
        failure.map_or(Ok(requeued), Err)
    }

    async fn requeue_one(&self, id: &QueryId) -> Result<QueryId, RequeueError> {
        let kinds = &self.context.kinds;
        let kind = self.context.broker.dead_letter(id).await?.query.kind;
        if kinds.find(&kind).is_none_or(|kind| kind.is_removed()) {
            let gone = RoutingError::NoSuchKind { kind: kind.to_string(), known: kinds.describe() };
            return Err(RequestError::from(gone).into());
        }
        let new_id = QueryId::generate();
        self.context.broker.requeue(id, new_id.clone()).await?;
        Ok(new_id)
    }

    /// Deletes dead letters, and returns how many there were.
    pub async fn purge(&self, selection: DeadLetterSelection) -> Result<usize, DeadLetterError> {
        let all = matches!(selection, DeadLetterSelection::All { .. });
        let mut purged = 0;
        for id in self.selected_ids(selection).await? {
            match self.context.broker.purge(&id).await {
                Ok(()) => purged += 1,
                // With `All`, a letter that is gone by now is no error.
                Err(DeadLetterError::NoSuchDeadLetter(_)) if all => {}
                Err(error) => return Err(error),
            }
        }
        Ok(purged)
    }

    async fn selected_ids(&self, selection: DeadLetterSelection) -> Result<Vec<QueryId>, DeadLetterError> {
        let kind = match selection {
            DeadLetterSelection::Ids(ids) => return Ok(ids),
            DeadLetterSelection::All { kind } => kind,
        };
        let mut ids = Vec::new();
        let mut after = Some(0);
        while let Some(from) = after {
            let page = Page { after: from, size: PAGE_SIZE };
            let page = self.context.broker.dead_letters(kind.as_deref(), page).await?;
            ids.extend(page.letters.into_iter().map(|letter| letter.query.id));
            after = page.next;
        }
        Ok(ids)
    }
}
