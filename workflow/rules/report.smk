# Write the results of all jobs as tables, then as one self-contained HTML page.
rule aggregate:
    input:
        evaluations=[f"{RESULTS}/{job}/evaluation.json" for job in PLAN.folders],
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


rule report:
    input:
        summary=f"{RESULTS}/summary.csv",
        trials=[f"{RESULTS}/search/trials.csv"] if EXPERIMENT.search else [],
    output:
        report(
            f"{RESULTS}/report.html",
            caption="../report/report.rst",
            category="Comparison",
        ),
    log:
        f"logs/{EXPERIMENT.name}/report.log",
    conda:
        "../envs/nnlo.yaml"
    params:
        folders=[f"{RESULTS}/{job}" for job in PLAN.folders],
        search=["--search", f"{RESULTS}/search"] if EXPERIMENT.search else [],
    message:
        "write {output}"
    shell:
        f"python {SCRIPTS}/report.py"
        # No parameter, because an experiment in another folder is no other one.
        f" --output {{output:q}} --experiment-file={quote(EXPERIMENT_FILE)}"
        " --summary {input.summary:q} {params.search:q} {params.folders:q} 2>&1 | tee -i {log:q}"
