# Train each run with each seed (and fold) with MPI, and evaluate its model on the test split, which is not used for
# training: one job. Only the evaluation is a declared output, because Snakemake deletes declared outputs before it runs a
# job and after the job failed: the model, history.csv, summary.json and `state/` beside it survive a failed evaluation, and
# an edit that trains nothing again. The job trains only what they lack. The main process compares contents and forces the
# jobs whose results are outdated: Snakemake would compare times, of other clocks, of config.json and of the user's files.

JOB = f"{RESULTS}/{{run}}/{{job}}"
# Snakemake deletes the log before each attempt, also when the scheduler queues the job again. A copy, which needs no hard
# links, keeps the output of earlier attempts.
KEEP_LOG = "rm -f {log:q}; touch {log:q}.all; cp {log:q}.all {log:q}; "


rule train:
    input:
        manifest=lambda wildcards: ancient(PLAN.manifest(wildcards.run)),
    output:
        evaluation=f"{JOB}/evaluation.json",
        values=f"{JOB}/sample_metrics.npz",
        predictions=f"{JOB}/predictions.npz",
    log:
        f"logs/{EXPERIMENT.name}/{{run}}/{{job}}/train.log",
    wildcard_constraints:
        run=any_of(PLAN.runs),
        job=PLAN.job_pattern,
    conda:
        "../envs/nnlo.yaml"
    threads: PLAN.training_resources.threads
    resources:
        **PLAN.training_resources.resources,
        mpi=lambda wildcards: PLAN.launcher(wildcards.run),
        launcher="",
        on_preemption="exit",
    params:
        options=lambda wildcards: PLAN.job_options(wildcards.job),
        folder=JOB,
        config=f"{RESULTS}/{{run}}/config.json",
        settings=lambda wildcards: PLAN.result_settings(wildcards.run),
    message:
        "train {wildcards.run} {wildcards.job}, processes: {resources.tasks}"
    shell:
        # One thread for the evaluation: its figures do not depend on the cores of the job. The ranks set their own.
        f"{KEEP_LOG} OMP_NUM_THREADS=1 MKL_NUM_THREADS=1"
        f" python {SCRIPTS}/train.py"
        " --launcher={resources.mpi:q}{resources.launcher:q} --minutes {resources.runtime:q}"
        " --attempt {resources.attempt:q} --on-preemption {resources.on_preemption:q}"
        " --config {params.config:q} --manifest {input.manifest:q} --folder {params.folder:q} {params.options}"
        " 2>&1 | tee -ia {log:q} {log:q}.all"
