"""Provenance of the results: settings, code version, hosts, times, packages, commands."""

import json
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from nnlo_lib.config.paths import RunPaths
from nnlo_lib.core.text_format import MISSING
from nnlo_lib.report.finished_job import group_by_run
from nnlo_lib.report.formatting import format_bytes, format_duration, listing, plural
from nnlo_lib.state.finished_run import FinishedRun
from nnlo_lib.state.input_record import has_copy


@dataclass(frozen=True)
class ResolvedSetting:
    """A dotted key of the resolved configuration, and its value in each run."""

    key: str
    values: tuple[str, ...]

    @property
    def differs(self) -> bool:
        """Whether the value differs between runs."""
        return len(set(self.values)) > 1


def resolved_settings(jobs: Sequence[FinishedRun]) -> list[ResolvedSetting]:
    """Return every key of the resolved configurations, in order of first appearance."""
    flat = [dict(_flatten(group[0].summary["config"])) for group in group_by_run(jobs).values()]
    keys = dict.fromkeys(key for config in flat for key in config)
    return [ResolvedSetting(key, tuple(config.get(key, MISSING) for config in flat)) for key in keys]


def provenance_facts(jobs: Sequence[FinishedRun]) -> list[tuple[str, str]]:
    """Return code version, user's files, hosts and their hardware, number of jobs, start, finish and configuration hash.

    If jobs differ in a fact, all its values are listed.
    """
    ranks = [str(count) for count in sorted({job.summary["ranks"] for job in jobs})]
    hosts = _different(host for job in jobs for host in job.summary.get("hosts", []))
    rows = [
        ("code", _different(job.summary.get("code_version") for job in jobs)),
        ("user's files", _different(_user_files(jobs))),
        ("hosts", hosts),
        ("hardware", "; ".join(hardware_texts(job.summary.get("hardware", {}) for job in jobs))),
        ("training tasks", f"{len(jobs)}, with {listing(ranks)} ranks"),
        *_span(jobs),
        ("configuration", _different(job.summary.get("config_hash") for job in jobs)),
    ]
    return [(name, value) for name, value in rows if value]


def hardware_texts(hosts: Iterable[dict[str, dict[str, Any]]]) -> list[str]:
    """Return the distinct descriptions of hosts: processor, cores, memory and GPUs.

    Args:
        hosts: hardware by host, as each summary records it.
    """
    return list(dict.fromkeys(_hardware_text(name, host) for each in hosts for name, host in each.items()))


def _hardware_text(name: str, host: dict[str, Any]) -> str:
    gpus = [f"{count} × {gpu}" for gpu, count in Counter(host["gpus"]).items()]
    parts = [
        host["cpu"],
        f"{plural(host['threads'], 'thread')} of {plural(host['ranks'], 'rank')} on {host['cores_available']} of "
        f"{plural(host['cores'], 'core')}",
        f"{format_bytes(host['memory_bytes'])} memory",
        *gpus,
    ]
    return f"{name}: {', '.join(parts)}"


def packages(jobs: Sequence[FinishedRun]) -> list[tuple[str, str]]:
    """Return the version of each package; if jobs differ, all versions are listed."""
    known = [job.summary.get("packages", {}) for job in jobs]
    keys = dict.fromkeys(key for versions in known for key in versions)
    return [(key, _different(versions.get(key) for versions in known)) for key in keys]


def commands(jobs: Sequence[FinishedRun], experiment_file: Path) -> str:
    """Return the shell commands that repeat the experiment in a clone of the repository."""
    # The code version is `<version> (<commit>)`, with `+` after the commit if files were modified.
    commit = re.search(r"([0-9a-f]{7,40})(\+?)\)$", str(jobs[0].summary.get("code_version", "")))
    checkout = ""
    if commit:
        remarks = ["plus the uncommitted changes"] * bool(commit[2])
        # One command cannot reproduce trainings by several versions.
        remarks += ["code of the first training task; others differ"] * (len(_versions(jobs)) > 1)
        checkout = f"git checkout {commit[1]}{'  # ' * bool(remarks)}{'; '.join(remarks)}\n"
    file = shlex.quote(str(experiment_file))
    return f"{checkout}make setup\n.venv/bin/snakemake --profile profiles/local --configfile {file}"


def _versions(jobs: Sequence[FinishedRun]) -> set[str]:
    return {str(job.summary.get("code_version")) for job in jobs}


def _flatten(config: dict[str, Any], prefix: str = "") -> Iterable[tuple[str, str]]:
    for key, value in config.items():
        if isinstance(value, dict) and value:
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value if isinstance(value, str) else json.dumps(value)


def _span(jobs: Sequence[FinishedRun]) -> list[tuple[str, str]]:
    # Times are UTC in ISO 8601, so that their alphabetical order is their order in time.
    started = sorted(str(job.summary["started"]) for job in jobs if job.summary.get("started"))
    finished = sorted(str(job.summary["finished"]) for job in jobs if job.summary.get("finished"))
    if not started or not finished:
        return []
    try:
        took = (datetime.fromisoformat(finished[-1]) - datetime.fromisoformat(started[0])).total_seconds()
    except (TypeError, ValueError):
        return [("started", started[0]), ("finished", finished[-1])]
    return [("started", started[0]), ("finished", f"{finished[-1]} ({format_duration(took)} later)")]


def _user_files(jobs: Sequence[FinishedRun]) -> Iterable[str]:
    """Yield each file with the start of its checksum; copies of the code are kept with each job."""
    for job in jobs:
        for path, checksum in job.input_checksums.items():
            kept = f" in {RunPaths.code.name}/" if has_copy(path) else ""
            yield f"{path} ({checksum[:8]}{kept})"


def _different(values: Iterable[object]) -> str:
    return ", ".join(dict.fromkeys(str(value) for value in values if value is not None))
