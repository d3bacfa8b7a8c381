"""The start of Snakemake with NNLO's Snakefile: the experiment file, the handlers, and the jobs that are forced."""

import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from nnlo_lib.config import Experiment
from nnlo_lib.core.errors import EXIT_USER_ERROR, UserError

Workflow = Any  # snakemake.workflow.Workflow
Handler = Callable[[str], object]
LoadFunction = Callable[[str], dict[str, Any]]
DEFAULT_FILE = "config/config.yaml"
OPTIONAL_RULES = {"fold_task", "best"}  # of profiles, for experiments with a search
OWN_FOLDERS = ("results/", "data/")


def the_experiment_file(workflow: Workflow, config: dict[str, Any], load: LoadFunction) -> str:
    """Return the experiment file that Snakemake was called with; without one, config/config.yaml.

    Args:
        config: the settings that the Snakefile sees: of the file, or of a `module` statement.
        load: Snakemake's reader of such files.

    Raises UserError for what Snakemake would do and NNLO would not read: `--config KEY=VALUE`, several files, settings that a
    Snakefile changes, and other prefixes of paths.
    """
    if given := workflow.config_settings.config:
        raise UserError(
            f"--config {' '.join(given)}: settings are read from the experiment file, for which results are kept; write "
            "them there, or train one run with `nnlo run FILE --set KEY=VALUE`"
        )
    files = workflow.configfiles
    if len(files) > 1:
        names = ", ".join(os.path.relpath(file) for file in files)
        raise UserError(
            f"--configfile: one experiment at a time, not {len(files)} ({names}); call snakemake once for each"
        )
    paths = workflow.modifier.path_modifier
    if paths.prefix or paths.modifies_prefixes:
        raise UserError(
            "module: NNLO's paths (data/, results/, logs/) take no `prefix:`; remove it, and call snakemake in another "
            "folder, for example with --directory"
        )
    module = workflow.modifier.globals["__name__"]
    if getattr(workflow, "nnlo_module", module) != module:
        raise UserError(
            f"module {module}: NNLO is a module already, with one experiment for each call of snakemake; remove this module"
        )
    workflow.nnlo_module = module
    file = str(files[0] if files else DEFAULT_FILE)
    if workflow.is_main_process:
        keys = Experiment.model_fields.keys() & config.keys()
        written = load(file) if keys and Path(file).exists() else {}
        if other := sorted(key for key in keys if config[key] != written.get(key)):
            raise UserError(
                f"config: {', '.join(other)} of the Snakefile or module differs from {file}, and settings are read from this "
                "file; write them there, and pass `config: config` to the module"
            )
    return file


class JobChoice:
    """The jobs that run beside those that Snakemake chooses: jobs with outdated outputs, which it cannot notice by their times.

    Args:
        outdated: outputs that are to be written again.
    """

    def __init__(self, workflow: Workflow, outdated: set[str]) -> None:
        self._workflow, self._outdated = workflow, outdated
        self._forced_files: set[str] = set()
        self._prepare_dag = workflow._prepare_dag
        workflow._prepare_dag = self._prepare

    def _prepare(self, *arguments: Any, **options: Any) -> None:
        # Only now, because the Snakefile is read before Snakemake sets these.
        execution = self._workflow.execution_settings
        if execution and execution.no_hooks:
            print(
                "nnlo: error: --no-hooks: jobs would not find the settings that onstart writes; remove this option",
                file=sys.stderr,
            )
            sys.exit(EXIT_USER_ERROR)
        self._prepare_dag(*arguments, **options)
        dag = self._workflow.dag
        self._forced_files = set(dag.forcefiles)
        # Not by --forcerun, which would make them targets, too.
        dag.forcefiles.update(self._outdated)
        self._warn_of_unknown_rules()

    def _warn_of_unknown_rules(self) -> None:
        settings = self._workflow.resource_settings
        rules = {rule.name for rule in self._workflow.rules}
        unknown = {*settings.overwrite_resources, *settings.overwrite_threads} - rules
        if unknown - OPTIONAL_RULES:
            print(
                f"nnlo: warning: resources of {', '.join(sorted(unknown))}: no rule has this name, so they have no effect; "
                f"rules: {', '.join(sorted(rules))}; correct the profile or --set-resources",
                file=sys.stderr,
            )

    @property
    def started(self) -> set[str]:
        """Outputs of the jobs that will start."""
        return {str(output) for job in self._workflow.dag.needrun_jobs() for output in job.output}

    @property
    def forced(self) -> set[str]:
        """Outputs of the jobs that the user forces."""
        dag = self._workflow.dag
        return {
            str(output)
            for job in dag.needrun_jobs()
            for output in job.output
            if job.rule in dag.forcerules or not self._forced_files.isdisjoint(job.output)
        }

    def set_times_to_now(self) -> None:
        """Set the times of NNLO's files that a clock ahead of this one has written, of which Snakemake would fail the jobs."""
        now = time.time()
        for file in {str(file) for job in self._workflow.dag.needrun_jobs() for file in job.input}:
            with suppress(OSError):  # missing, or of a colleague
                if file.startswith(OWN_FOLDERS) and os.stat(file).st_mtime > now:
                    os.utime(file)


def add_handlers(workflow: Workflow, start: Handler, success: Handler, error: Handler) -> None:
    """Run handlers before the user's own of the same name, which a Snakefile may define before or after this call.

    Snakemake runs the handlers of the main Snakefile only, also if it uses NNLO as a module.
    """
    if hasattr(workflow, "nnlo_handlers"):  # each `use rule` reads the Snakefile of a module
        return
    workflow.nnlo_handlers = True
    for name, own in (("onstart", start), ("onsuccess", success), ("onerror", error)):
        _add_handler(workflow, name, own)


def _add_handler(workflow: Workflow, name: str, own: Handler) -> None:
    attribute, register = f"_{name}", getattr(workflow, name)

    def both(theirs: Handler) -> Handler:
        return lambda log: (own(log), theirs(log))

    def register_both(theirs: Handler) -> None:
        before = getattr(workflow, attribute)
        register(theirs)
        if getattr(workflow, attribute) is not before:  # not of another module
            setattr(workflow, attribute, both(theirs))

    setattr(workflow, attribute, both(getattr(workflow, attribute)))
    setattr(workflow, name, register_both)
