//! Waiting queries whose owner runs as many as it may: out of everyone's way, by owner.
//!
//! An owner that may run one more has one turn among the queries that anyone could take, and besides one in each lane that
//! is held: a query that waits for its worker never stands in for another whose worker may be free.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use super::{
    TOLERATED,
    order::{Item, Order},
    spot::Place,
};

#[derive(Debug, Default)]
pub(super) struct Aside {
    owners: HashMap<Box<str>, Group>,
    /// How many queries of which owners there are of a lane.
    lanes: HashMap<Arc<str>, BTreeMap<Box<str>, usize>>,
}

#[derive(Debug, Default)]
struct Group {
    anyones: Order,
    /// Those of lanes that were held when it was looked at last. All that are held now are among them.
    held: BTreeMap<Arc<str>, Order>,
    waiting: usize,
}

fn waits(item: &Item) -> bool {
    matches!(item.entry.spot.get(), Place::Aside { .. })
}

fn pop(order: &mut Order) -> Option<Item> {
    std::iter::from_fn(|| order.pop()).find(waits)
}

impl Aside {
    pub(super) fn is_empty(&self) -> bool {
        self.owners.is_empty()
    }

    pub(super) fn push(&mut self, owner: &str, item: Item, is_held: bool) {
        if !self.owners.contains_key(owner) {
            self.owners.insert(owner.into(), Group::default());
        }
        let group = self.owners.get_mut(owner).expect("inserted if it was missing");
        group.waiting += 1;
        let Some(lane) = item.lane().cloned() else { return group.anyones.push(item) };
        *self.lanes.entry(lane.clone()).or_default().entry(owner.into()).or_default() += 1;
        let order = if is_held { group.held.entry(lane).or_default() } else { &mut group.anyones };
        order.push(item);
    }

    /// Takes out those that an owner may try once it may run one more.
    pub(super) fn bring_back(&mut self, owner: &str, is_held: impl Fn(&str) -> bool) -> Vec<Item> {
        let Some(group) = self.owners.get_mut(owner) else { return Vec::new() };
        let mut back = Vec::new();
        for (_, mut opened) in group.held.extract_if(.., |lane, _| !is_held(lane)) {
            std::iter::from_fn(|| pop(&mut opened)).for_each(|item| group.anyones.push(item));
        }
        back.extend(pop(&mut group.anyones));
        group.held.retain(|_, order| {
            back.extend(pop(order));
            order.len() > 0
        });
        group.tidy();
        for item in &back {
            self.forget(owner, item.lane());
        }
        back
    }

    /// A lane is held from now on. Takes out the first query of each owner in it.
    pub(super) fn held(&mut self, lane: &Arc<str>) -> Vec<Item> {
        let owners: Vec<_> = self.lanes.get(lane).into_iter().flat_map(BTreeMap::keys).cloned().collect();
        let mut back = Vec::new();
        for owner in &owners {
            let Some(group) = self.owners.get_mut(owner) else { continue };
            let mut order = group.held.remove(lane).unwrap_or_default();
            let mut found = Vec::new();
            group.anyones.keep(|item| {
                let elsewhere = item.lane() != Some(lane);
                found.extend((!elsewhere).then(|| item.clone()));
                elsewhere
            });
            for item in found {
                order.push(item);
            }
            back.extend(pop(&mut order));
            if order.len() > 0 {
                group.held.insert(lane.clone(), order);
            }
        }
        for item in &back {
            self.forget(item.owner().unwrap_or_default(), Some(lane));
        }
        back
    }

    /// One of an owner's no longer waits at all.
    pub(super) fn left(&mut self, owner: &str, lane: Option<&Arc<str>>) {
        self.forget(owner, lane);
        if let Some(group) = self.owners.get_mut(owner) {
            group.tidy();
        }
    }

    /// One of an owner's is no longer here.
    fn forget(&mut self, owner: &str, lane: Option<&Arc<str>>) {
        if let Some(lane) = lane
            && let Some(owners) = self.lanes.get_mut(lane)
        {
            if let Some(count) = owners.get_mut(owner) {
                *count -= 1;
                if *count == 0 {
                    owners.remove(owner);
                }
            }
            if owners.is_empty() {
                self.lanes.remove(lane);
            }
        }
        let Some(group) = self.owners.get_mut(owner) else { return };
        group.waiting -= 1;
        if group.waiting == 0 {
            self.owners.remove(owner);
        }
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

impl Group {
    /// Drops those that no longer wait, where they are the greater part.
    fn tidy(&mut self) {
        if self.anyones.len() > 2 * self.waiting + TOLERATED {
            self.anyones.keep(waits);
        }
        let held: usize = self.held.values().map(Order::len).sum();
        if held > 2 * self.waiting + TOLERATED {
            self.held.retain(|_, order| {
                order.keep(waits);
                order.len() > 0
            });
        }
    }
}
