# Evaluate each trained model on the test split, which is not used for training.


rule evaluate:
    input:
        manifest=lambda wildcards: PLAN.manifest(wildcards.run),
        user_files=lambda wildcards: PLAN.input_files(wildcards.run),
        model=f"{JOB}/model.safetensors",
        partition=f"{JOB}/partition.npz",
    output:
        f"{JOB}/evaluation.json",
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
        "python scripts/evaluate.py --config {params.config} --manifest {input.manifest}"
        " --model {input.model} --output {output} 2>&1 | tee -i {log}"


rule aggregate:
    input:
        evaluations=[f"{RESULTS}/{job}/evaluation.json" for job in PLAN.folders],
        summaries=[f"{RESULTS}/{job}/summary.json" for job in PLAN.folders],
    output:
        report(
            f"{RESULTS}/summary.csv",
            caption="../report/summary.rst",
            category="Comparison",
        ),
    log:
        f"logs/{EXPERIMENT.name}/aggregate.log",
    conda:
        "../envs/nnlo.yaml"
    params:
        folders=[f"{RESULTS}/{job}" for job in PLAN.folders],
    message:
        "aggregate the results of all jobs in {RESULTS}"
    shell:
        "python scripts/aggregate.py --output {output} {params.folders} 2>&1 | tee -i {log}"
