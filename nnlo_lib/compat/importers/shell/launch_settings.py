"""Numbers of ranks, GPUs, threads and nodes, and the limits of a job, from the options of launchers."""

import re
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from nnlo_lib.compat.importers.shell.launcher_options import NOTES, REASONS
from nnlo_lib.compat.importers.shell.option_values import (
    environment_variables,
    host_slots,
    hostfile_slots,
    lsf_minutes,
    parse_count,
    size_mb,
    slurm_minutes,
)

NUMBERS = {
    "ranks", "ranks_per_node", "nodes", "threads", "resource_sets", "ranks_per_set", "threads_per_set", "gpus_per_set",
    "sets_per_node", "gpus_per_rank", "gpus_per_node", "gpus",
}  # fmt: skip


@dataclass
class LaunchSettings:
    """Options of a launcher or of a job, by meaning.

    Attributes:
        numbers: numbers by meaning.
        texts: other values by meaning, such as `partition`.
        sources: options as they were written, by meaning.
        environment: variables that the launcher sets for the ranks.
        written: all options as they were written.
        remarks: options that affect only the placement of processes, or nothing.
        untranslated: options without an equivalent, with the reason.
    """

    numbers: dict[str, int] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    written: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    untranslated: list[tuple[str, str]] = field(default_factory=list)

    def add(self, meaning: str, value: str, written: str) -> None:
        """Record one option.

        Args:
            meaning: meaning of the option (see launcher_options.py).
            value: values of the option, separated by spaces; empty for a flag.
            written: the option as it was written, with its value.

        Raises:
            UserError: if a number is required and the value is none.
        """
        self.written.append(written)
        if meaning == "environment":
            self.environment |= environment_variables(value)
        if meaning in NOTES:
            self.remarks.append(f"{written}: {NOTES[meaning]}")
        elif meaning in REASONS:
            self.untranslated.append((written, REASONS[meaning]))
        elif meaning in NUMBERS:
            self._set(meaning, parse_count(value, written), written)
        else:
            getattr(self, f"_add_{meaning}", partial(self._add_text, meaning))(value, written)

    def merged(self, inner: "LaunchSettings") -> "LaunchSettings":
        """Return these settings, of a job, with those of the launcher that runs in it, which take precedence."""
        return LaunchSettings(
            {**self.numbers, **inner.numbers},
            {**self.texts, **inner.texts},
            {**self.sources, **inner.sources},
            {**self.environment, **inner.environment},
            [*self.written, *inner.written],
            [*self.remarks, *inner.remarks],
            [*self.untranslated, *inner.untranslated],
        )

    def source(self, *meanings: str) -> str:
        """Return the options of the meanings as they were written."""
        return ", ".join(dict.fromkeys(self.sources[each] for each in meanings if each in self.sources))

    def _set(self, meaning: str, value: int, written: str) -> None:
        self.numbers[meaning], self.sources[meaning] = value, written

    def _add_text(self, meaning: str, value: str, written: str) -> None:
        self.texts[meaning], self.sources[meaning] = value, written

    def _add_gres(self, value: str, written: str) -> None:
        """Add GPUs of a node from Slurm's `gpu:2` or `gpu:a100:2`; other resources belong to the site."""
        for each in value.split(","):
            kind, *rest = each.split(":")
            if kind == "gpu":
                count = rest[-1] if rest and rest[-1].isdigit() else "1"
                self._set("gpus_per_node", parse_count(count, written), written)
            else:
                self.untranslated.append((written, REASONS["site"]))

    def _add_lsf_gpu(self, value: str, written: str) -> None:
        found = re.search(r"num=(\d+)(/task)?", value)
        per_task = bool(found and found[2])
        self._set("gpus_per_rank" if per_task else "gpus_per_node", int(found[1]) if found else 1, written)

    def _add_lsf_span(self, value: str, written: str) -> None:
        if found := re.fullmatch(r"span\[ptile=(\d+)\]", value):
            self._set("ranks_per_node", int(found[1]), written)
        elif value == "span[hosts=1]":
            self._set("nodes", 1, written)
        else:
            self.untranslated.append((written, REASONS["site"]))

    def _add_hosts(self, value: str, written: str) -> None:
        self._add_slots(host_slots(value), written)

    def _add_hostfile(self, value: str, written: str) -> None:
        if Path(value).is_file():
            self._add_slots(hostfile_slots(Path(value)), written)
        else:
            self._add_text("unknown_hosts", value, written)

    def _add_slots(self, hosts: dict[str, str], written: str) -> None:
        self._set("slots", sum(parse_count(slots, written) for slots in hosts.values()), written)
        if len(hosts) > 1:
            self._set("hosts", len(hosts), written)

    def _add_slurm_time(self, value: str, written: str) -> None:
        self._set("runtime", slurm_minutes(value, written), written)

    def _add_lsf_time(self, value: str, written: str) -> None:
        self._set("runtime", lsf_minutes(value, written), written)

    def _add_memory_per_node(self, value: str, written: str) -> None:
        self._set("memory_per_node", size_mb(value, written), written)

    def _add_memory_per_cpu(self, value: str, written: str) -> None:
        self._set("memory_per_cpu", size_mb(value, written), written)
