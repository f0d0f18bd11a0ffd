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
        for id in self.selected(selection).await? {
            let new_id = QueryId::generate();
            self.inner.broker.requeue(&id, new_id.clone()).await?;
            requeued.push((id, new_id));
        }
        for kind in 0..self.inner.kinds.len() {
            self.inner.dispatch(kind).await;
        }
        Ok(requeued)
    }

    /// Forgets the letters, and says how many there were.
    pub async fn purge(&self, selection: Selection) -> Result<usize, DeadLetterError> {
        let ids = self.selected(selection).await?;
        for id in &ids {
            self.inner.broker.purge(id).await?;
        }
        Ok(ids.len())
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
