# What happens before the first job and after the last; not as onstart, onsuccess and onerror, which a module would lose.
import signal
from subprocess import CalledProcessError

from nnlo_lib.executors.progress import interrupted_fold_tasks
from nnlo_lib.workflow.outcome import (
    describe_failures,
    divide_jobs,
)

# Snakemake does not say in `onerror` whether Ctrl-C ended it.
INTERRUPTS: list[int] = []


def record_interrupt(number: int, frame: object) -> None:
    """Record Ctrl-C, and raise KeyboardInterrupt as Python does."""
    INTERRUPTS.append(number)
    signal.default_int_handler(number, frame)


# Not if the signal is ignored, as below nohup.
if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, record_interrupt)


def write_partial_results(finished: list[str], unfinished: list[str]) -> str:
    """Write summary and page; return the path of the page, or an empty string if it cannot be written."""
    summary, page = f"{RESULTS}/summary.csv", f"{RESULTS}/report.html"
    searched = EXPERIMENT.search and Path(f"{RESULTS}/search/trials.csv").exists()
    search = ["--search", f"{RESULTS}/search"] if searched else []
    failed = [word for folder in unfinished for word in ("--failed", folder)]
    if not finished and not search:
        return ""
    try:
        if finished:
            shell(
                f"python {SCRIPTS}/aggregate.py"
                " --output {summary:q} --comparisons {RESULTS:q}/comparisons.csv {finished:q}"
            )
        shell(
            f"python {SCRIPTS}/report.py"
            " --output {page:q} --experiment-file={EXPERIMENT_FILE:q} --summary {summary:q}"
            " {search:q} {failed:q} {finished:q}"
        )
    except CalledProcessError:  # The command has printed its error.
        return ""
    return page


def report_failures(log: str) -> None:
    """Write the page of the finished trainings, print why others failed, and run `observe.notify`.

    Rules cannot do this: a rule runs only when all its inputs exist. Snakemake still ends with the status of a failure.
    """
    if EXPERIMENT.search and (lost := interrupted_fold_tasks(SEARCH.folder)):
        print(f"{lost}the same command resumes the search", file=sys.stderr)
    finished, unfinished = divide_jobs(PLAN)
    counts = f"{len(unfinished)} of {len(finished + unfinished)}"
    notify(
        EXPERIMENT.observe.notify,
        "stopped" if INTERRUPTS else "failed",
        f"{EXPERIMENT.name}: {'stopped' if INTERRUPTS else 'ended'} with {counts} trainings without results",
        Path(RESULTS),
    )
    # Without the page among the targets, jobs that were not asked for are no failures.
    if unfinished and any(
        f"{RESULTS}/report.html" in job.output for job in workflow.dag.jobs
    ):
        print(
            describe_failures(unfinished, write_partial_results(finished, unfinished)),
            file=sys.stderr,
        )


# Before the first job, but not in a dry run. These files are no outputs of rules: an edit that changes no result of a
# finished training, such as one of `resources`, would else train it again.
def start_jobs(log: str) -> None:
    """Set aside what the jobs replace, and write their settings."""
    try:
        if workflow.non_local_exec:
            refuse_automatic_gpus(EXPERIMENT_FILE)
        PLAN.lease_experiment()
        if workflow.touch:
            if OUTDATED:
                print(
                    "nnlo: --touch changes only times, and contents decide what is outdated: the next start without it trains",
                    file=sys.stderr,
                )
            return
        CHOICE.set_times_to_now()
        prepare_trainings(PLAN, CHOICE.started, CHOICE.forced)
        record_owner(EXPERIMENT.name, EXPERIMENT_FILE)
        PLAN.write_configs()
        if EXPERIMENT.search:
            SEARCH.update_best()
        if not (workflow.non_local_exec or HAS_CONDA) and can_fork(EXPERIMENT):
            shell.prefix(command_prefix(fork_server_of_jobs()))
    except UserError as error:
        print(f"nnlo: error: {error}", file=sys.stderr)
        sys.exit(2)


def end_of_success(log: str) -> None:
    """Run the user's command `observe.notify`; exit with status 1 if a search has lost trials."""
    lost = SEARCH.lost_trials if EXPERIMENT.search else []
    event = "failed" if lost else "finished"
    notify(
        EXPERIMENT.observe.notify,
        event,
        f"{EXPERIMENT.name}: {event}",
        Path(RESULTS),
    )
    if lost:
        print("\n".join(lost), file=sys.stderr)
        sys.exit(1)
