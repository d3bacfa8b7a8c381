"""What `snakemake --profile lsf` will ask of LSF for the jobs of an experiment."""

import os
import shlex
from collections.abc import Iterator
from dataclasses import replace

from nnlo_lib.cluster.lsf.lsf_profile import LsfProfile
from nnlo_lib.cluster.lsf.lsf_request import DEFAULT_GPU_OPTIONS, LsfRequest, slots_per_host
from nnlo_lib.config import Experiment, Run
from nnlo_lib.config.resources import RunResources


def lsf_requests(experiment: Experiment, profile: LsfProfile | None = None) -> list[str]:
    """Return a line with the options of bsub for each kind of job.

    Args:
        experiment: the experiment.
        profile: the profile; None: the one of this folder.
    """
    profile = profile or LsfProfile.read()
    lines = []
    if experiment.search:
        lines.append(f"search, fold tasks: {_training(experiment, 'fold_task', profile)}")
    for name, run in {} if experiment.search and not experiment.runs else experiment.variants.items():
        rule = "train" if RunResources(run).processes > 1 else "train_single"
        lines += [f"run {name}: {_training(run, rule, profile)}", *_evaluation(name, run, profile)]
    return lines


def _training(run: Run, rule: str, profile: LsfProfile) -> str:
    needs = RunResources(run)
    ptile = slots_per_host(needs.cores, needs.processes, needs.nodes, profile.slots_per_host(rule))
    # A fold task of one rank is asked for as a job of several ranks is.
    request = LsfRequest(needs.cores, 0 if rule == "train_single" else ptile, needs.gpus)
    return f"{_options(run, rule, request, profile)} -W {needs.runtime_min}"


def _evaluation(name: str, run: Run, profile: LsfProfile) -> Iterator[str]:
    if RunResources(run).gpus:
        yield f"run {name}, evaluation: {_options(run, 'evaluate', LsfRequest(1, 0, 1), profile)}"


def _options(run: Run, rule: str, request: LsfRequest, profile: LsfProfile) -> str:
    # profiles/lsf reads the same variable.
    queue = run.resources.partition or os.environ.get("LSB_DEFAULTQUEUE", "")
    own = profile.gpu_request(rule)
    asked = replace(
        request, gpus=0 if own else request.gpus, gpu_options=profile.gpu_options(rule) or DEFAULT_GPU_OPTIONS
    )
    words = ["bsub", f"-q {shlex.quote(queue)}" if queue else "", asked.words, own]
    return " ".join(filter(None, words))
