# Fetch the original files, convert them once to the common store.


rule fetch:
    output:
        "data/{dataset}/raw/fetched.json",
    log:
        "logs/{dataset}/fetch.log",
    conda:
        "../envs/nnlo.yaml"
    params:
        source=lambda wildcards: PLAN.source(wildcards.dataset),
    message:
        "fetch {wildcards.dataset}"
    shell:
        "python scripts/fetch.py --dataset {wildcards.dataset} {params.source}"
        " --target data/{wildcards.dataset}/raw 2>&1 | tee -i {log}"


rule convert:
    input:
        "data/{dataset}/raw/fetched.json",
    output:
        "data/{dataset}/{format}/manifest.json",
    log:
        "logs/{dataset}/convert-{format}.log",
    wildcard_constraints:
        format="hdf5|npz",
    conda:
        "../envs/nnlo.yaml"
    params:
        shard_size=lambda wildcards: PLAN.shard_size(
            wildcards.dataset, wildcards.format
        ),
    message:
        "convert {wildcards.dataset} to {wildcards.format}"
    shell:
        "python scripts/convert.py --dataset {wildcards.dataset} --raw data/{wildcards.dataset}/raw"
        " --target data/{wildcards.dataset}/{wildcards.format} --format {wildcards.format}"
        " --shard-size {params.shard_size} 2>&1 | tee -i {log}"
