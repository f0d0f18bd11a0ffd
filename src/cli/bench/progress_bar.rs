//! The progress bar of a run on a terminal.

use std::{
    io::{self, IsTerminal},
    sync::Arc,
    time::Duration,
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::{task::JoinHandle, time};

use crate::bench::{Progress, ProgressSnapshot, Subject};

/// Often enough to move smoothly, seldom enough not to disturb the measurement.
const REDRAW_INTERVAL: Duration = Duration::from_millis(200);
const BAR_STEPS: u64 = 1_000;

/// Shows the bar until it is dropped.
pub(super) struct RunProgressBar {
    bar: ProgressBar,
    drawing: JoinHandle<()>,
}

/// `None` if standard error is not a terminal.
pub(super) fn show(progress: Arc<Progress>, rounds: u32) -> Option<RunProgressBar> {
    if !io::stderr().is_terminal() {
        return None;
    }
    let style = ProgressStyle::with_template("{bar:30} {msg}").expect("the template is well formed");
    let bar = ProgressBar::with_draw_target(Some(BAR_STEPS), ProgressDrawTarget::stderr()).with_style(style);
    let drawing = tokio::spawn({
        let bar = bar.clone();
        async move {
            let mut ticks = time::interval(REDRAW_INTERVAL);
            loop {
                ticks.tick().await;
                if let Some(snapshot) = progress.snapshot() {
                    bar.set_position(step(snapshot.share));
                    bar.set_message(describe(&snapshot, rounds));
                }
            }
        }
    });
    Some(RunProgressBar { bar, drawing })
}

impl Drop for RunProgressBar {
    fn drop(&mut self) {
        self.drawing.abort();
        self.bar.finish_and_clear();
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share is between 0 and 1")]
fn step(share: f64) -> u64 {
    (share * 1_000.0) as u64
}

/// Text beside the bar, as `round 2 of 3, baseline, 41200 queries/s`.
#[expect(clippy::cast_precision_loss, reason = "a rate needs no more than a few digits")]
fn describe(snapshot: &ProgressSnapshot, rounds: u32) -> String {
    let subject = match snapshot.round.subject {
        Subject::Pool => "remuda",
        Subject::Baseline => "baseline",
        Subject::Unary => "unary",
        Subject::Raw => "raw round trip",
        Subject::Chaos => "chaos",
    };
    let rate = snapshot.ended as f64 / snapshot.elapsed.as_secs_f64().max(0.001);
    match snapshot.round.number {
        0 => format!("warming up, {subject}"),
        _ if rate < 1.0 => format!("round {} of {rounds}, {subject}", snapshot.round.number),
        round => format!("round {round} of {rounds}, {subject}, {rate:.0} queries/s"),
    }
}
