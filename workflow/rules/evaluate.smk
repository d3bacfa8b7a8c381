# Evaluate each trained model on the test split, which is not used for training.
from nnlo_lib.workflow.outcome import partial_stamp


rule evaluate:
    input:
        manifest=lambda wildcards: PLAN.manifest(wildcards.run),
        user_files=lambda wildcards: PLAN.input_files(wildcards.run),
        model=f"{JOB}/model.safetensors",
        partition=f"{JOB}/partition.npz",
    output:
        evaluation=f"{JOB}/evaluation.json",
        values=f"{JOB}/sample_metrics.npz",
    log:
        f"logs/{EXPERIMENT.name}/{{run}}/{{job}}/evaluate.log",
    wildcard_constraints:
        job=PLAN.job_pattern,
    conda:
        "../envs/nnlo.yaml"
    resources:
        **PLAN.training_resources.evaluation_resources,
    params:
        config=f"{RESULTS}/{{run}}/config.json",
    message:
        "evaluate {wildcards.run} {wildcards.job}"
    shell:
        f"python {SCRIPTS}/evaluate.py"
        " --config {params.config:q} --manifest {input.manifest:q}"
        " --model {input.model:q} --output {output.evaluation:q} 2>&1 | tee -i {log:q}"


rule aggregate:
    input:
        partial=partial_stamp(PLAN),
        evaluations=[f"{RESULTS}/{job}/evaluation.json" for job in PLAN.folders],
        summaries=[f"{RESULTS}/{job}/summary.json" for job in PLAN.folders],
    output:
        summary=report(
            f"{RESULTS}/summary.csv",
            caption="../report/summary.rst",
            category="Comparison",
        ),
        comparisons=report(
            f"{RESULTS}/comparisons.csv",
            caption="../report/comparisons.rst",
            category="Comparison",
        ),
    log:
        f"logs/{EXPERIMENT.name}/aggregate.log",
    conda:
        "../envs/nnlo.yaml"
    params:
        folders=[f"{RESULTS}/{job}" for job in PLAN.folders],
    message:
        f"aggregate the results of all jobs in {RESULTS}"
    shell:
        f"python {SCRIPTS}/aggregate.py"
        " --output {output.summary:q} --comparisons {output.comparisons:q}"
        " {params.folders:q} 2>&1 | tee -i {log:q}"
