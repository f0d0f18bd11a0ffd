//! Lists that the server gives in pages, printed as a table or as lines of JSON.

use super::{
    exit::{CliError, CliExit},
    json::Json,
    output,
    table::{Cell, Table},
};
use crate::client::ClientError;

/// The largest page that the server gives.
pub(super) const PAGE_SIZE_MAX: u32 = 1000;

/// Form and extent of a list.
pub(super) struct ListPrinter<T, R: Fn(&T) -> Vec<Cell>> {
    pub json: bool,
    pub limit: Option<usize>,
    pub page_size: u32,
    pub to_json: fn(&T) -> Json,
    pub table: Table,
    pub to_row: R,
    /// Printed instead of an empty table.
    pub empty_note: &'static str,
}

impl<T, R: Fn(&T) -> Vec<Cell>> ListPrinter<T, R> {
    /// Prints the items of all pages up to the limit. `fetch` takes the size of a page and its token, and gives the items and
    /// the token of the next page. JSON is printed page by page, a table at the end; neither keeps the items.
    pub(super) async fn print(
        mut self,
        mut fetch: impl AsyncFnMut(u32, String) -> Result<(Vec<T>, String), ClientError>,
    ) -> Result<CliExit, CliError> {
        let mut left = self.limit.unwrap_or(usize::MAX);
        let mut token = String::new();
        while left > 0 {
            let size = u32::try_from(left).unwrap_or(u32::MAX).min(self.page_size);
            let (mut items, next_token) = fetch(size, token).await?;
            items.truncate(left);
            left -= items.len();
            for item in &items {
                if self.json {
                    output::line((self.to_json)(item).get())?;
                } else {
                    self.table.row((self.to_row)(item));
                }
            }
            if next_token.is_empty() {
                break;
            }
            token = next_token;
        }
        match (self.json, self.table.is_empty()) {
            (true, _) => {}
            (false, true) => output::note(self.empty_note),
            (false, false) => output::text(&self.table.render())?,
        }
        Ok(CliExit::Done)
    }
}
