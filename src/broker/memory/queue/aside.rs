//! Waiting queries whose owner runs as many as it may: out of everyone's way, by owner.

use std::collections::HashMap;

use super::{
    TOLERATED,
    order::{Item, Order},
    spot::Place,
};

#[derive(Debug, Default)]
pub(super) struct Aside(HashMap<Box<str>, Group>);

#[derive(Debug, Default)]
struct Group {
    queries: Order,
    waiting: usize,
}

fn waits(item: &Item) -> bool {
    matches!(item.entry.spot.get(), Place::Aside { .. })
}

impl Aside {
    pub(super) fn push(&mut self, owner: &str, item: Item) {
        if !self.0.contains_key(owner) {
            self.0.insert(owner.into(), Group::default());
        }
        let group = self.0.get_mut(owner).expect("inserted if it was missing");
        group.queries.push(item);
        group.waiting += 1;
    }

    /// The first of an owner.
    pub(super) fn pop(&mut self, owner: &str) -> Option<Item> {
        let group = self.0.get_mut(owner)?;
        let item = std::iter::from_fn(|| group.queries.pop()).find(waits);
        self.left(owner);
        item
    }

    /// One of an owner's no longer waits here.
    pub(super) fn left(&mut self, owner: &str) {
        if let Some(group) = self.0.get_mut(owner) {
            group.waiting -= 1;
            if group.waiting == 0 {
                self.0.remove(owner);
            } else if group.queries.len() > 2 * group.waiting + TOLERATED {
                group.queries.keep(waits);
            }
        }
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}
