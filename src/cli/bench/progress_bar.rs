//! A bar on a terminal that shows how far a run has come.

use std::{
    io::{self, IsTerminal},
    sync::Arc,
    time::Duration,
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::{task::JoinHandle, time};

use crate::bench::{Progress, Standing, Subject};

/// Often enough to move, and seldom enough to cost nothing.
const REDRAW: Duration = Duration::from_millis(200);
const STEPS: u64 = 1_000;

/// Shows the bar until this is dropped.
pub(super) struct Shown {
    bar: ProgressBar,
    drawing: JoinHandle<()>,
}

/// `None` where nobody looks.
pub(super) fn show(progress: Arc<Progress>, rounds: u32) -> Option<Shown> {
    if !io::stderr().is_terminal() {
        return None;
    }
    let style = ProgressStyle::with_template("{bar:30} {msg}").expect("the template is well formed");
    let bar = ProgressBar::with_draw_target(Some(STEPS), ProgressDrawTarget::stderr()).with_style(style);
    let drawing = tokio::spawn({
        let bar = bar.clone();
        async move {
            let mut ticks = time::interval(REDRAW);
            loop {
                ticks.tick().await;
                if let Some(standing) = progress.standing() {
                    bar.set_position(step(standing.share));
                    bar.set_message(words(&standing, rounds));
                }
            }
        }
    });
    Some(Shown { bar, drawing })
}

impl Drop for Shown {
    fn drop(&mut self) {
        self.drawing.abort();
        self.bar.finish_and_clear();
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share is between 0 and 1")]
fn step(share: f64) -> u64 {
    (share * 1_000.0) as u64
}

/// As `round 2 of 3, baseline, 41200 queries/s`.
#[expect(clippy::cast_precision_loss, reason = "a rate needs no more than a few digits")]
fn words(standing: &Standing, rounds: u32) -> String {
    let subject = match standing.stage.subject {
        Subject::Pool => "remuda",
        Subject::Baseline => "baseline",
        Subject::Unary => "unary",
        Subject::Raw => "raw round trip",
        Subject::Chaos => "chaos",
    };
    let rate = standing.ended as f64 / standing.elapsed.as_secs_f64().max(0.001);
    match standing.stage.round {
        0 => format!("warming up, {subject}"),
        _ if rate < 1.0 => format!("round {} of {rounds}, {subject}", standing.stage.round),
        round => format!("round {round} of {rounds}, {subject}, {rate:.0} queries/s"),
    }
}
