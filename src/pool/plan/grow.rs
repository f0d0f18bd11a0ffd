//! Starts workers: up to what is always kept, for queries that have waited, and for keys that have none.

use std::{sync::Arc, time::Duration};

use super::{
    Step,
    room::{Lack, Room},
    view::{KindView, Starts},
};

/// A need that could not be met for lack of room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Unmet {
    pub lack: Limit,
    pub key: Option<Arc<str>>,
    /// How long it has been felt.
    pub waited: Duration,
    pub what: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Limit {
    /// The kind's own `max`: only a worker of the same kind can make room.
    Kind,
    Places,
    Memory,
}

/// How many workers are wanted, for which keys, and why.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Wish {
    keys: Vec<Option<Arc<str>>>,
    reason: String,
    /// Without them a query, or the kind, has no worker at all: others may have to make room.
    pressing: bool,
    waited: Duration,
}

pub(super) fn plan(kind: &KindView, room: &mut Room, steps: &mut Vec<Step>) -> Vec<Unmet> {
    let Some(wish) = wish(kind) else { return Vec::new() };
    let mut free = kind.config.max.get().saturating_sub(kind.present());
    let mut leaving = kind.workers.iter().filter(|worker| worker.is_stopping()).count();
    let mut granted = Vec::new();
    let mut unmet = Vec::new();
    for key in wish.keys {
        let lack = match grant(kind, &mut free, &mut leaving, room) {
            Grant::Now => {
                granted.push(key);
                continue;
            }
            Grant::Soon => continue,
            Grant::Never(lack) => lack,
        };
        if !wish.pressing {
            break;
        }
        unmet.push(Unmet { lack, key, waited: wish.waited, what: wish.reason.clone() });
    }
    if !granted.is_empty() {
        steps.push(Step::Grow { kind: kind.kind, keys: granted, reason: wish.reason });
    }
    unmet
}

enum Grant {
    Now,
    /// When a worker that leaves is gone, or enough of those that start are up.
    Soon,
    /// Not unless a worker makes room.
    Never(Limit),
}

fn grant(kind: &KindView, free: &mut usize, leaving: &mut usize, room: &mut Room) -> Grant {
    if *free == 0 {
        // The place of a worker of the kind that leaves is as good as free, once.
        let soon = leaving.checked_sub(1).map(|rest| *leaving = rest).is_some();
        return if soon { Grant::Soon } else { Grant::Never(Limit::Kind) };
    }
    match room.take(kind.memory()) {
        Ok(()) => {
            *free -= 1;
            Grant::Now
        }
        Err(Lack::Soon | Lack::Starts) => Grant::Soon,
        Err(Lack::Places) => Grant::Never(Limit::Places),
        Err(Lack::Memory) => Grant::Never(Limit::Memory),
    }
}

/// What the kind would have if there were room for everything.
pub(super) fn wish(kind: &KindView) -> Option<Wish> {
    if kind.starts == Starts::PutOff {
        return None;
    }
    let mut wish = for_floor(kind).or_else(|| for_keys(kind)).or_else(|| for_load(kind))?;
    if kind.starts == Starts::Troubled {
        wish.keys.truncate(1usize.saturating_sub(kind.starting()));
    }
    (!wish.keys.is_empty()).then_some(wish)
}

fn for_floor(kind: &KindView) -> Option<Wish> {
    let live = kind.live();
    let missing = kind.floor.checked_sub(live).filter(|missing| *missing > 0)?;
    let reason = if kind.floor > kind.config.min {
        format!("{live} of the {} workers that were asked for", kind.floor)
    } else {
        format!("{live} of min {} workers", kind.floor)
    };
    Some(Wish { keys: vec![None; missing], reason, pressing: true, waited: Duration::ZERO })
}

/// Each key that waits without a worker needs one of its own, however many workers there are.
fn for_keys(kind: &KindView) -> Option<Wish> {
    if !kind.config.keyed || kind.ready {
        return None;
    }
    // Those that are starting for no key in particular take the first ones.
    let unbound = kind.workers.iter().filter(|worker| worker.is_starting() && !worker.bound).count();
    let lanes: Vec<&(Arc<str>, Duration)> = kind.demand.lanes.iter().skip(unbound).collect();
    let (first, waited) = lanes.first()?;
    let reason = match lanes.len() {
        1 => format!("key {first:?} has no worker"),
        several => format!("{several} keys have no worker, {first:?} first"),
    };
    let keys = lanes.iter().map(|(key, _)| Some(key.clone())).collect();
    Some(Wish { keys, reason, pressing: true, waited: *waited })
}

fn for_load(kind: &KindView) -> Option<Wish> {
    let demand = kind.demand.open;
    if kind.config.keyed || kind.ready || demand == 0 {
        return None;
    }
    let wish = |workers: usize, reason: String, pressing: bool| {
        let waited = kind.demand.oldest.unwrap_or_default();
        Some(Wish { keys: vec![None; workers], reason, pressing, waited })
    };
    let coming = demand.saturating_sub(kind.starting());
    if kind.live() == 0 {
        return wish(coming, format!("no worker, and {demand} waiting"), true);
    }
    let config = &kind.config;
    let waited = kind.demand.oldest.unwrap_or_default();
    let settled = kind.since_growth.is_none_or(|since| since >= config.scale_up_after);
    if waited < config.scale_up_after || !settled {
        return None;
    }
    if demand > config.scale_up_depth {
        let reason = format!("{demand} waiting (scale_up_depth {})", config.scale_up_depth);
        return wish(config.scale_up_step.get().min(coming), reason, false);
    }
    let reason = format!("a query has waited {:.1?} (scale_up_after {:?})", waited, config.scale_up_after);
    wish(coming.min(1), reason, false)
}
