//! What a person does with dead letters: lets them live again, or forgets them.

use crate::{
    broker::{DeadLetterError, Page},
    model::QueryId,
};

use super::Pool;

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

impl Pool {
    /// Submits the letters' queries afresh. Gives each old id with its new one.
    pub async fn requeue(&self, selection: Selection) -> Result<Vec<(QueryId, QueryId)>, DeadLetterError> {
        let mut requeued = Vec::new();
        let outcome = self.requeue_each(selection, &mut requeued).await;
        self.inner.dispatch_all().await;
        outcome.map(|()| requeued)
    }

    async fn requeue_each(
        &self,
        selection: Selection,
        requeued: &mut Vec<(QueryId, QueryId)>,
    ) -> Result<(), DeadLetterError> {
        let all = matches!(selection, Selection::All { .. });
        for id in self.selected(selection).await? {
            let new_id = QueryId::generate();
            match self.inner.broker.requeue(&id, new_id.clone()).await {
                Ok(()) => requeued.push((id, new_id)),
                Err(error) => tolerate(error, all)?,
            }
        }
        Ok(())
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
