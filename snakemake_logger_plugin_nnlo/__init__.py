"""Snakemake's logger `nnlo`: a line when trainings start, a line when a job ends, with its result and the time left.

`nnlo all` uses it, and `snakemake --logger nnlo` may. Snakemake's own log stays in .snakemake/log.
"""

import functools
import json
import sys
import time
from collections import Counter
from collections.abc import Callable
from logging import WARNING, LogRecord
from pathlib import Path
from signal import SIGINT, SIGTERM
from typing import Any

from snakemake.common import configfile as snakemake_configfile
from snakemake_interface_logger_plugins.base import LogHandlerBase
from snakemake_interface_logger_plugins.common import LogEvent

from nnlo_lib.core.errors import EXIT_STOPPED, EXIT_USER_ERROR, UserError
from nnlo_lib.core.text_format import duration_text, metrics_text, number

# After the first one: ends of a command that a signal reached while Python started, and of its shell.
STOPPED = [
    f"exit status {EXIT_STOPPED}.",
    *(
        end
        for number in (SIGINT, SIGTERM)
        for end in (f"exit status {128 + number}.", f"died with {number!r}.")
    ),
]
# Rules whose jobs may take hours: they are also named when they start.
LONG_RULES = ("train", "best", "fold_task")


def explain_unreadable_files(reader: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap Snakemake's reader of config files, which is called before a Snakefile: for what it cannot read, NNLO's is asked.

    Snakemake gives a traceback for UTF-16 and a date such as 2024-13-01, and no line for other mistakes.
    """

    @functools.wraps(reader)
    def read(path: Any, *args: Any) -> Any:
        try:
            return reader(path, *args)
        except Exception:
            if not isinstance(path, str | Path) or not Path(path).is_file():
                raise
            from nnlo_lib.experiment.yaml_source import parse_yaml  # only then

            try:
                return parse_yaml(Path(path).read_bytes(), lambda line: f"{path}:{line}")[0]
            except UserError as error:
                print(f"nnlo: error: {error}", file=sys.stderr)
                sys.exit(EXIT_USER_ERROR)

    return read


# Snakemake imports its logger plugins before it reads config files.
snakemake_configfile._load_configfile = explain_unreadable_files(snakemake_configfile._load_configfile)


class LogHandler(LogHandlerBase):
    """Prints the lines to stderr."""

    writes_to_stream = True  # in place of Snakemake's own lines
    writes_to_file = False
    has_filter = True
    has_formatter = True
    needs_rulegraph = False

    def __post_init__(self) -> None:
        self._jobs: dict[int, Any] = {}  # records of JOB_INFO by the number of the job
        self._starts: dict[int, float] = {}
        self._seconds: dict[str, list[float]] = {}  # of the jobs that ended, by rule
        self._is_stopped = False  # the job that failed last was stopped and has saved
        self._left: Counter[str] = Counter()  # planned jobs, by rule

    def emit(self, record: LogRecord) -> None:
        """Print the line of a record, if it has one."""
        try:
            if text := self._text(record):
                print(text, file=sys.stderr, flush=True)
        except Exception:  # an exception would end Snakemake's thread for all further lines
            self.handleError(record)

    def _text(self, record: Any) -> str:
        text = str(record.getMessage())
        match getattr(record, "event", None):
            case LogEvent.RUN_INFO:
                self._left = Counter({rule: count for rule, count in record.stats.items() if rule != "total"})
                return ""
            case LogEvent.JOB_INFO:
                return self._started(record)
            case LogEvent.JOB_FINISHED:
                return self._finished(record.job_id)
            case LogEvent.JOB_ERROR:
                ending = "stopped" if self._is_stopped else "failed"
                return f"{_clock()}  {ending}: {_title(self._jobs.get(record.jobid, record))}{_log_files(record)}"
            # The command of a job, which the job's own line follows.
            case LogEvent.ERROR if "CalledProcessError" in text:
                self._is_stopped = any(end in text for end in STOPPED)
                return ""
            case LogEvent.ERROR if "At least one job did not complete" not in text:
                return text
            case None if record.levelno >= WARNING or text.startswith("Nothing to be done"):
                return text.partition("\n")[0]
        return ""

    def _started(self, job: Any) -> str:
        self._jobs[job.jobid] = job
        self._starts[job.jobid] = time.monotonic()
        if getattr(self.common_settings, "dryrun", False):
            return f"planned: {_title(job)}"
        return f"{_clock()}  started: {_title(job)}" if job.rule_name in LONG_RULES else ""

    def _finished(self, number_: int) -> str:
        job = self._jobs.get(number_)
        if job is None or not (job.output or job.log):  # a target without a command
            return ""
        seconds = time.monotonic() - self._starts[number_]
        self._seconds.setdefault(job.rule_name, []).append(seconds)
        self._left[job.rule_name] -= 1
        parts = [_title(job), _result(job), f"{number(seconds, 2)} s", self._time_left()]
        return f"{_clock()}  {'  '.join(filter(None, parts))}"

    def _time_left(self) -> str:
        """Return the estimated time to the end: the planned jobs take as long as those of the same rule did."""
        means = {rule: sum(each) / len(each) for rule, each in self._seconds.items()}
        left = sum(count * means.get(rule, 0.0) for rule, count in self._left.items() if count > 0)
        # Nothing is known before the first training has ended.
        if not left or any(
            count > 0 and rule in LONG_RULES and rule not in means for rule, count in self._left.items()
        ):
            return ""
        done = sum(
            map(sum, self._seconds.values())
        )  # more than the time that passed, if jobs ran side by side
        return f"about {duration_text((time.monotonic() - min(self._starts.values())) * left / done)} left"


def _clock() -> str:
    return time.strftime("%H:%M:%S")


def _title(job: Any) -> str:
    return str(getattr(job, "rule_msg", None) or getattr(job, "rule_name", "job"))


def _log_files(record: Any) -> str:
    files = ", ".join(map(str, getattr(record, "log", None) or ()))
    return f" (log: {files})" if files else ""


def _result(job: Any) -> str:
    """Return the metrics of the evaluation, or the last validation of a fold task, from the job's first file."""
    if job.rule_name not in LONG_RULES:
        return ""
    found = json.loads(Path(job.output[0].removesuffix(" (update)")).read_text())
    if "rows" in found:
        found = {name: value for name, value in found["rows"][-1].items() if name.startswith("val_")}
    return metrics_text(found)
