# Hyperparameter search: each fold task is a job. When a fold task ends, the search decides on the next ones.
from snakemake.io import flag

from nnlo_lib.core.text_format import plural
from nnlo_lib.workflow.search_plan import TrialQueue

BEST = f"{SEARCH.best}/seed-{{seed}}"


# Snakemake treats this object as the queue of a from_queue() input and reads it when a fold task has ended.
TRIAL_QUEUE = TrialQueue(
    EXPERIMENT,
    SEARCH.folder,
    executing=lambda: workflow.scheduler is not None,
    pretending=lambda: workflow.dryrun or workflow.touch,
)


# After the end of a search its files must not change, so the rule is not defined.
if not SEARCH.has_ended:

    rule search:
        input:
            (
                flag(TRIAL_QUEUE.consume, "from_queue", TRIAL_QUEUE)
                if workflow.is_main_process
                else []
            ),
        output:
            f"{SEARCH.folder}/ended.json",
        log:
            f"logs/{EXPERIMENT.name}/search/search.log",
        localrule: True
        conda:
            "../envs/nnlo.yaml"
        params:
            end_conditions=SEARCH.end_conditions,
            config=f"{SEARCH.folder}/config.json",
        message:
            f"search: at most {plural(EXPERIMENT.search.trials, 'trial')} (folds per trial: {EXPERIMENT.search.folds.k})"
        shell:
            "cp {params.config:q} {output:q} 2>&1 | tee -i {log:q}"


# Train one fold of one trial up to an epoch; before it, the other fold tasks of the same job (search.tasks_per_job). With
# `update`, Snakemake keeps existing results and does not repeat them.
rule fold_task:
    input:
        manifest=ancient(PLAN.base_manifest),
    output:
        update(f"{SEARCH.folder}/trials/{{trial}}/fold-{{fold}}/epochs-{{epochs}}.json"),
    log:
        f"logs/{EXPERIMENT.name}/search/{{trial}}/fold-{{fold}}/epochs-{{epochs}}.log",
    wildcard_constraints:
        trial=r"\d+",
        epochs=r"\d+",
    conda:
        "../envs/nnlo.yaml"
    threads: SEARCH.trial_resources.threads
    resources:
        **SEARCH.job_resources,
        # Empty because the Slurm plugin rejects `mpi` for one rank; present because the plugin then adds no srun.
        mpi="",
        launcher="mpiexec",
        on_preemption="exit",
    params:
        folder=SEARCH.folder,
        tasks=lambda wildcards: " ".join(
            f"{task.trial} {task.fold} {task.epochs}"
            for task in SEARCH.job_tasks(wildcards)
        ),
        point=lambda wildcards: SEARCH.point(wildcards.trial),
    message:
        "trial {wildcards.trial} fold {wildcards.fold} to epoch {wildcards.epochs}: {params.point}"
    shell:
        f"{KEEP_LOG}"
        "python -P -m nnlo_lib.cli task trial {params.folder:q} {params.tasks}"
        " --launcher={resources.mpi:q}{resources.launcher:q} --minutes {resources.runtime:q}"
        " --attempt {resources.attempt:q} --on-preemption {resources.on_preemption:q} 2>&1 | tee -ia {log:q} {log:q}.all"


rule trials:
    input:
        f"{SEARCH.folder}/ended.json",
    output:
        f"{SEARCH.folder}/trials.csv",
    log:
        f"logs/{EXPERIMENT.name}/search/trials.log",
    localrule: True
    conda:
        "../envs/nnlo.yaml"
    params:
        folder=SEARCH.folder,
    message:
        "write {output}"
    shell:
        f"python {SCRIPTS}/search.py"
        " --folder {params.folder:q} --table {output:q} 2>&1 | tee -i {log:q}"


rule choose:
    input:
        f"{SEARCH.folder}/trials.csv",
    output:
        config=f"{SEARCH.best}/config.json",
        file=f"{SEARCH.folder}/best.yaml",
    log:
        f"logs/{EXPERIMENT.name}/search/choose.log",
    localrule: True
    conda:
        "../envs/nnlo.yaml"
    params:
        folder=SEARCH.folder,
    message:
        "choose the best trial"
    shell:
        f"python {SCRIPTS}/search.py"
        " --folder {params.folder:q} --best 2>&1 | tee -i {log:q}"


use rule train as best with:
    input:
        # Only a search that continues trains its best again, but not an edit of `resources` or `seeds`.
        trials=f"{SEARCH.folder}/trials.csv",
        config=ancient(f"{SEARCH.best}/config.json"),
        manifest=ancient(PLAN.base_manifest),
    output:
        evaluation=f"{BEST}/evaluation.json",
        values=f"{BEST}/sample_metrics.npz",
        predictions=f"{BEST}/predictions.npz",
    log:
        f"logs/{EXPERIMENT.name}/best/seed-{{seed}}/train.log",
    threads: SEARCH.retraining_resources.threads
    resources:
        **SEARCH.retraining_resources.resources,
        mpi="",
        launcher="mpiexec",
        on_preemption="exit",
    params:
        options=lambda wildcards: PLAN.job_options(f"seed-{wildcards.seed}"),
        folder=BEST,
        config=f"{SEARCH.best}/config.json",
        # An edit of `search.choose` after the end of the search trains another trial.
        settings="of the best trial" + " (knee)" * (EXPERIMENT.search.choose == "knee"),
    message:
        "retrain the best trial, seed {wildcards.seed}"
