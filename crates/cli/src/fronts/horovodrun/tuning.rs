//! What horovodrun tells Horovod in variables.

use super::super::flag::Given;
use super::super::set_variable;
use super::Draft;
use crate::failure::Failure;

/// Set if Horovod is to look for good values; without it the other variables that begin so are
/// left out, as horovodrun does.
const AUTOTUNE: &str = "HOROVOD_AUTOTUNE";

/// Goes with a timeline only.
const MARK_CYCLES: &str = "HOROVOD_TIMELINE_MARK_CYCLES";

pub(super) fn text(draft: &mut Draft, given: &Given, variable: &str) -> Result<(), Failure> {
    let value = given.text()?.to_owned();
    set_variable(&mut draft.request, variable, Some(value));
    Ok(())
}

pub(super) fn number(draft: &mut Draft, given: &Given, variable: &str) -> Result<(), Failure> {
    let value: u64 = given.whole()?;
    set_variable(&mut draft.request, variable, Some(value.to_string()));
    Ok(())
}

/// For a switch: `NAME=VALUE` as it stands; a name alone is 1.
#[expect(
    clippy::unnecessary_wraps,
    reason = "it is what is done with a flag, which may fail"
)]
pub(super) fn exactly(draft: &mut Draft, _: &Given, setting: &str) -> Result<(), Failure> {
    let (variable, value) = setting.split_once('=').unwrap_or((setting, "1"));
    set_variable(&mut draft.request, variable, Some(value.to_owned()));
    Ok(())
}

/// The flag is in megabytes, the variable in bytes.
pub(super) fn fusion(draft: &mut Draft, given: &Given) -> Result<(), Failure> {
    let megabytes: u64 = given.whole()?;
    let bytes = megabytes.checked_mul(1 << 20);
    let bytes = bytes.ok_or_else(|| given.wrong("a number of megabytes", "128"))?;
    set_variable(
        &mut draft.request,
        "HOROVOD_FUSION_THRESHOLD",
        Some(bytes.to_string()),
    );
    Ok(())
}

pub(super) fn cycle(draft: &mut Draft, given: &Given, variable: &str) -> Result<(), Failure> {
    match given.number::<f64>("a time in milliseconds", "3.5")? {
        time if time.is_finite() && time >= 0.0 => text(draft, given, variable),
        _ => Err(given.wrong("a time in milliseconds", "3.5")),
    }
}

pub(super) fn noise(draft: &mut Draft, given: &Given, variable: &str) -> Result<(), Failure> {
    match given.number::<f64>("a number from 0 to 1", "0.8")? {
        noise if (0.0..=1.0).contains(&noise) => text(draft, given, variable),
        _ => Err(given.wrong("a number from 0 to 1", "0.8")),
    }
}

/// A program may use Horovod or Carole, so both are told.
pub(super) fn timeline(draft: &mut Draft, given: &Given) -> Result<(), Failure> {
    draft.request.timeline = Some(given.path());
    text(draft, given, "HOROVOD_TIMELINE")
}

pub(super) fn log_level(draft: &mut Draft, given: &Given, variable: &str) -> Result<(), Failure> {
    match given.text()? {
        "TRACE" | "DEBUG" | "INFO" | "WARNING" | "ERROR" | "FATAL" => text(draft, given, variable),
        _ => Err(given.wrong("TRACE, DEBUG, INFO, WARNING, ERROR or FATAL", "INFO")),
    }
}

/// Removes what goes with something that was not asked for.
pub(super) fn drop_idle(draft: &mut Draft) {
    let timeline = draft.request.timeline.is_some();
    let autotune = draft.autotune;
    draft.request.variables.retain(|(name, _)| {
        (autotune || !name.starts_with(AUTOTUNE)) && (timeline || name != MARK_CYCLES)
    });
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{self, message, request, words};
    use super::super::parse;

    fn variables(flags: &str) -> Vec<String> {
        let request = request(parse(&words(&format!("-np 2 {flags} python train.py"))));
        let mut variables = testing::variables(request);
        variables.retain(|variable| variable != "PYTHONUNBUFFERED=1");
        variables
    }

    #[test]
    fn horovods_own_examples_become_the_variables_that_it_reads() {
        assert_eq!(
            variables("--fusion-threshold-mb 32 --cycle-time-ms 3.5"),
            [
                "HOROVOD_FUSION_THRESHOLD=33554432",
                "HOROVOD_CYCLE_TIME=3.5"
            ]
        );
        assert_eq!(
            variables("--timeline-filename /path/to/timeline.json --timeline-mark-cycles"),
            [
                "HOROVOD_TIMELINE=/path/to/timeline.json",
                "HOROVOD_TIMELINE_MARK_CYCLES=1"
            ]
        );
        assert_eq!(
            variables("--autotune --autotune-log-file /tmp/autotune_log.csv"),
            [
                "HOROVOD_AUTOTUNE=1",
                "HOROVOD_AUTOTUNE_LOG=/tmp/autotune_log.csv"
            ]
        );
    }

    #[test]
    fn every_other_setting_has_its_variable() {
        for (flags, expected) in [
            ("--cache-capacity 512", "HOROVOD_CACHE_CAPACITY=512"),
            (
                "--hierarchical-allreduce",
                "HOROVOD_HIERARCHICAL_ALLREDUCE=1",
            ),
            (
                "--no-hierarchical-allreduce",
                "HOROVOD_HIERARCHICAL_ALLREDUCE=0",
            ),
            (
                "--hierarchical-allgather",
                "HOROVOD_HIERARCHICAL_ALLGATHER=1",
            ),
            (
                "--no-hierarchical-allgather",
                "HOROVOD_HIERARCHICAL_ALLGATHER=0",
            ),
            ("--no-stall-check", "HOROVOD_STALL_CHECK_DISABLE=1"),
            (
                "--no-stall-check --stall-check",
                "HOROVOD_STALL_CHECK_DISABLE=0",
            ),
            (
                "--stall-check-warning-time-seconds 10",
                "HOROVOD_STALL_CHECK_TIME_SECONDS=10",
            ),
            (
                "--stall-check-shutdown-time-seconds 20",
                "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS=20",
            ),
            ("--mpi-threads-disable", "HOROVOD_MPI_THREADS_DISABLE=1"),
            ("--no-mpi-threads-disable", "HOROVOD_MPI_THREADS_DISABLE=0"),
            ("--tcp", "NCCL_IB_DISABLE=1"),
            ("--num-nccl-streams 2", "HOROVOD_NUM_NCCL_STREAMS=2"),
            ("--thread-affinity 1", "HOROVOD_THREAD_AFFINITY=1"),
            (
                "--gloo-timeout-seconds 60",
                "HOROVOD_GLOO_TIMEOUT_SECONDS=60",
            ),
            ("--log-level INFO", "HOROVOD_LOG_LEVEL=INFO"),
            ("--log-with-timestamp", "HOROVOD_LOG_HIDE_TIME=0"),
            ("--log-without-timestamp", "HOROVOD_LOG_HIDE_TIME=1"),
            ("--log-hide-timestamp", "HOROVOD_LOG_HIDE_TIME=1"),
        ] {
            assert_eq!(variables(flags), [expected], "{flags}");
        }
        assert_eq!(
            variables(
                "--autotune --autotune-warmup-samples 1 --autotune-steps-per-sample 5 \
                 --autotune-bayes-opt-max-samples 10 --autotune-gaussian-process-noise 0.2"
            ),
            [
                "HOROVOD_AUTOTUNE=1",
                "HOROVOD_AUTOTUNE_WARMUP_SAMPLES=1",
                "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE=5",
                "HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES=10",
                "HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE=0.2"
            ]
        );
    }

    #[test]
    fn a_timeline_is_for_carole_too() {
        let request = request(parse(&words("-np 2 --timeline-filename t.json a")));
        assert_eq!(request.timeline, Some("t.json".into()));
    }

    #[test]
    fn settings_of_what_is_off_are_left_out() {
        for flags in [
            "--timeline-mark-cycles",
            "--autotune-log-file log",
            "--autotune --autotune-warmup-samples 1 --no-autotune",
        ] {
            assert!(variables(flags).is_empty(), "{flags}");
        }
    }

    #[test]
    fn values_that_cannot_be_are_named() {
        for (flags, expected) in [
            ("--fusion-threshold-mb -1", "expected a whole number"),
            (
                "--fusion-threshold-mb 99999999999999999",
                "a number of megabytes",
            ),
            ("--cycle-time-ms -1", "expected a time in milliseconds"),
            ("--cycle-time-ms inf", "expected a time in milliseconds"),
            (
                "--autotune-gaussian-process-noise 2",
                "expected a number from 0 to 1",
            ),
            ("--log-level LOUD", "expected TRACE, DEBUG"),
        ] {
            let message = message(parse(&words(&format!("-np 2 {flags} a"))));
            assert!(message.contains(expected), "{message}");
        }
    }
}
