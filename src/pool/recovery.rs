//! Recovery: decides how a query goes on when its attempt ends, with a result, an error, a dead letter or a retry.

use std::{sync::Arc, time::Duration};

use crate::{
    broker::{AttemptCounts, Ending},
    config::{Recovery, RetryConfig},
    model::{DeathCertificate, Failure, FailureReason, Outcome, Retrying},
    worker::Conclusion,
};

const CUT_SHORT: &str = "the server stopped before the query ended";

/// The rules that apply to one query.
#[derive(Debug, Clone, Copy)]
pub(super) struct RecoveryRules<'a> {
    pub recovery: Recovery,
    pub retry: &'a RetryConfig,
    /// From 0 to 1; spreads the retries of queries that failed together.
    pub jitter: f64,
}

/// Decides how an attempt ends from the worker's conclusion. `None` if the lease was lost: another replica ends the query.
pub(super) fn decide(conclusion: Conclusion, tries: AttemptCounts, rules: RecoveryRules<'_>) -> Option<Ending> {
    Some(match conclusion {
        Conclusion::Complete { result } => Ending::plain(Outcome::Complete { result }),
        Conclusion::Reported(failure) => reported(*failure, tries, rules),
        Conclusion::Cancelled { reason, stage } => {
            Ending::plain(Outcome::Cancelled { reason: (*reason).into(), stage })
        }
        Conclusion::TimedOut { limit, stage, certificate } => {
            let limit = Duration::from_millis(limit.as_millis().try_into().unwrap_or(u64::MAX));
            let message = format!(
                "the query ran longer than its timeout of {}; the worker let go {}",
                humantime::format_duration(limit),
                stage.words()
            );
            dead(Failure { certificate, ..Failure::new(FailureReason::TimedOut, message) })
        }
        Conclusion::Died(certificate) => died(&certificate, tries, rules),
        Conclusion::Overflowed => {
            let message = "its readers did not keep up: the log is full and results.max_stall is over";
            failed(Failure::new(FailureReason::Overflow, message))
        }
        Conclusion::CutShort => failed(Failure::new(FailureReason::Shutdown, CUT_SHORT)),
        Conclusion::LeaseLost => return None,
    })
}

fn failed(failure: Failure) -> Ending {
    Ending::plain(Outcome::Error(Box::new(failure)))
}

fn dead(failure: Failure) -> Ending {
    Ending::Over { outcome: Outcome::Error(Box::new(failure)), dead_letter: true }
}

/// The worker reported an error and lives. It says whether a retry may help.
fn reported(mut failure: Failure, tries: AttemptCounts, rules: RecoveryRules<'_>) -> Ending {
    if !failure.retryable {
        return failed(failure);
    }
    let max_attempts = rules.retry.attempts + 1;
    failure.attempt = Some((tries.reported + 1, max_attempts));
    if tries.reported >= rules.retry.attempts {
        failure.message = format!("{}; attempt {} of {max_attempts}", failure.message, tries.reported + 1).into();
        return dead(failure);
    }
    let delay = backoff(rules.retry, tries.reported).mul_f64(1.0 - RETRY_JITTER_MAX * rules.jitter);
    Ending::Retry(Retrying { failed_attempt: tries.attempt, max_attempts, delay, failure })
}

/// Largest part of a backoff that the jitter takes away.
const RETRY_JITTER_MAX: f64 = 0.25;

/// 1, 2, 4, 8 times the first delay, up to the longest.
fn backoff(retry: &RetryConfig, failures: u32) -> Duration {
    let factor = 1u32.checked_shl(failures).unwrap_or(u32::MAX);
    retry.backoff.saturating_mul(factor).min(retry.backoff_max)
}

/// The worker died while it ran the query. How much of the query was carried out is unknown.
fn died(certificate: &Arc<DeathCertificate>, tries: AttemptCounts, rules: RecoveryRules<'_>) -> Ending {
    if !certificate.cause.is_failure() {
        let failure = Failure::new(FailureReason::Shutdown, CUT_SHORT).with_certificate(certificate.clone());
        return failed(failure);
    }
    let retries = match rules.recovery {
        Recovery::Reject => 0,
        Recovery::Retry { attempts } => attempts,
    };
    let (number, allowed) = (tries.died + 1, retries + 1);
    let attempt = format!("; attempt {number} of {allowed}");
    let failure = Failure {
        attempt: Some((number, allowed)),
        ..Failure::new(FailureReason::WorkerDied, certificate.summary_of_attempt(&attempt))
            .with_certificate(certificate.clone())
    };
    if tries.died >= retries {
        return dead(failure);
    }
    // Without a delay: another worker runs it, which has no reason to fail in the same way.
    Ending::Retry(Retrying { failed_attempt: tries.attempt, max_attempts: retries + 1, delay: Duration::ZERO, failure })
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::{
        model::{DeathCause, Exit, StopStage, WorkerId},
        protocol::JsonText,
    };

    const RETRY: RetryConfig =
        RetryConfig { attempts: 3, backoff: Duration::from_secs(1), backoff_max: Duration::from_secs(6) };

    fn rules(recovery: Recovery) -> RecoveryRules<'static> {
        RecoveryRules { recovery, retry: &RETRY, jitter: 0.0 }
    }

    fn tries(died: u32, reported: u32) -> AttemptCounts {
        AttemptCounts { attempt: died + reported + 1, died, reported }
    }

    fn death(cause: DeathCause) -> Conclusion {
        Conclusion::Died(Arc::new(DeathCertificate {
            worker: WorkerId(7),
            kind: "embed".into(),
            pid: Some(1),
            cause,
            exit: Exit::Signal(9),
            detail: None,
            query: None,
            uptime: Duration::from_millis(3_200),
            queries_processed: 0,
            peak_rss: Some(412 * 1024 * 1024),
            stderr_tail: "boom".to_owned(),
            at: SystemTime::UNIX_EPOCH,
        }))
    }

    fn reported_error(retryable: bool) -> Conclusion {
        let failure = Failure { retryable, ..Failure::new(FailureReason::Reported, "busy") };
        Conclusion::Reported(Box::new(failure))
    }

    /// The error of an ending, and whether the query becomes a dead letter.
    fn error(ending: Option<Ending>) -> (String, bool) {
        match ending {
            Some(Ending::Over { outcome: Outcome::Error(failure), dead_letter }) => {
                (failure.message.into(), dead_letter)
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn death_is_rejected_by_default_with_all_that_is_known() {
        let ending = decide(death(DeathCause::OomKernel), tries(0, 0), rules(Recovery::Reject));
        let text = "worker 7 (embed) was killed by SIGKILL after 3.2 s, 412.0 MiB peak; likely the kernel's \
                    out-of-memory killer; attempt 1 of 1; its last words: boom";
        assert_eq!(error(ending), (text.to_owned(), true));
    }

    #[test]
    fn death_is_retried_at_once_as_often_as_allowed() {
        let twice = rules(Recovery::Retry { attempts: 2 });
        for died in 0..2 {
            match decide(death(DeathCause::Crash), tries(died, 1), twice) {
                Some(Ending::Retry(retrying)) => {
                    assert_eq!((retrying.failed_attempt, retrying.max_attempts), (died + 2, 3));
                    assert_eq!(retrying.delay, Duration::ZERO);
                }
                other => panic!("{other:?}"),
            }
        }
        let (message, dead_letter) = error(decide(death(DeathCause::Crash), tries(2, 1), twice));
        assert!(message.contains("; attempt 3 of 3; ") && dead_letter, "{message}");
    }

    #[test]
    fn intended_end_is_never_retried() {
        let ending = decide(death(DeathCause::Shutdown), tries(0, 0), rules(Recovery::Retry { attempts: 9 }));
        assert_eq!(error(ending), (CUT_SHORT.to_owned(), false));
    }

    #[test]
    fn reported_errors_back_off_and_double_up_to_their_limit() {
        let delays: Vec<u64> = (0..3)
            .map(|reported| match decide(reported_error(true), tries(0, reported), rules(Recovery::Reject)) {
                Some(Ending::Retry(retrying)) => retrying.delay.as_secs(),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(delays, [1, 2, 4]);
        assert_eq!(backoff(&RETRY, 3), Duration::from_secs(6));
        assert_eq!(backoff(&RETRY, 99), Duration::from_secs(6));
        let (message, dead_letter) = error(decide(reported_error(true), tries(0, 3), rules(Recovery::Reject)));
        assert_eq!((message.as_str(), dead_letter), ("busy; attempt 4 of 4", true));
    }

    #[test]
    fn jitter_only_shortens_a_delay() {
        let jittered = RecoveryRules { jitter: 1.0, ..rules(Recovery::Reject) };
        match decide(reported_error(true), tries(0, 1), jittered) {
            Some(Ending::Retry(retrying)) => assert_eq!(retrying.delay, Duration::from_millis(1_500)),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn permanent_error_ends_the_query_and_is_no_dead_letter() {
        let ending = decide(reported_error(false), tries(0, 0), rules(Recovery::Retry { attempts: 5 }));
        assert_eq!(error(ending), ("busy".to_owned(), false));
    }

    #[test]
    fn timeout_is_a_dead_letter_and_result_is_a_result() {
        let late = Conclusion::TimedOut {
            limit: Duration::from_micros(1_500_900),
            stage: StopStage::Sigkill,
            certificate: None,
        };
        let (message, dead_letter) = error(decide(late, tries(0, 0), rules(Recovery::Retry { attempts: 5 })));
        let text = "the query ran longer than its timeout of 1s 500ms; the worker let go on SIGKILL";
        assert_eq!((message.as_str(), dead_letter), (text, true));
        let result = JsonText::parse("1").unwrap();
        let done = decide(Conclusion::Complete { result: result.clone() }, tries(3, 3), rules(Recovery::Reject));
        assert_eq!(done, Some(Ending::plain(Outcome::Complete { result })));
        assert_eq!(decide(Conclusion::LeaseLost, tries(0, 0), rules(Recovery::Reject)), None);
    }
}
