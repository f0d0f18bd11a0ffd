//! Checks that the memory which the kinds' workers need fits the pool's budget.

use super::error::Mistakes;
use super::keys::kind as keys;
use super::kind::ReadKind;
use super::problem::Problem;
use super::reader::Origin;
use super::suggest::{first_few, segment};
use super::values::show_size;

/// Each kind must say what a worker needs, one worker must fit the budget, and so must those that
/// are kept warm.
pub(super) fn report(kinds: &[ReadKind], budget: u64, mistakes: &mut Mistakes) {
    let mut fitting = Vec::new();
    for kind in kinds {
        match (&kind.memory.origin, kind.memory.value) {
            (Origin::Default, _) => {
                let problem = Problem::MemoryMissing { budget: show_size(budget) };
                mistakes.add(&kind.place, kind.path_of(&keys::MEMORY), problem);
            }
            (Origin::Written(place), Some(memory)) if memory > budget => {
                let problem = Problem::OverBudget { memory: show_size(memory), budget: show_size(budget) };
                mistakes.add(place, kind.path_of(&keys::MEMORY), problem);
            }
            (Origin::Written(_), Some(memory)) if kind.min.valid().is_some() => {
                fitting.push(Need { kind, memory });
            }
            _ => {}
        }
    }
    if fitting.len() == kinds.len() {
        report_sum(&fitting, budget, mistakes);
    }
}

/// What the workers of one kind need.
struct Need<'a> {
    kind: &'a ReadKind,
    memory: u64,
}

impl Need<'_> {
    fn of_min(&self) -> u64 {
        self.memory.saturating_mul(self.kind.config.min as u64)
    }

    fn show(&self) -> String {
        format!("{} {} x {}", segment(&self.kind.config.name), self.kind.config.min, show_size(self.memory))
    }
}

/// Reports a sum over the budget at the kind that crosses it.
fn report_sum(needs: &[Need<'_>], budget: u64, mistakes: &mut Mistakes) {
    let mut sum = 0_u64;
    let mut crossing = None;
    for need in needs {
        sum = sum.saturating_add(need.of_min());
        if sum > budget && crossing.is_none() {
            crossing = Some(need.kind);
        }
    }
    if let Some(kind) = crossing {
        let parts = first_few(needs.iter().map(Need::show));
        let problem = Problem::MemorySum { sum: show_size(sum), parts, budget: show_size(budget) };
        mistakes.add(kind.min_place(), kind.path_of(&keys::MIN), problem);
    }
}
