# Write the results as one self-contained HTML page.


rule report:
    input:
        partial=partial_stamp(PLAN),
        experiment=EXPERIMENT_FILE,
        summary=f"{RESULTS}/summary.csv",
        histories=[f"{RESULTS}/{job}/history.csv" for job in PLAN.folders],
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
        " --output {output:q} --experiment-file={input.experiment:q}"
        " --summary {input.summary:q} {params.search:q} {params.folders:q} 2>&1 | tee -i {log:q}"
