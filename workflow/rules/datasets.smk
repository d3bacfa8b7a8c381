# Fetch the original files of each data set and convert them once to a store. `update`: Snakemake must not delete files that
# another Snakemake, of another experiment, has written since and trains with.


rule fetch:
    output:
        update("data/{dataset}/raw/fetched.json"),
    log:
        "logs/{dataset}/fetch.log",
    conda:
        "../envs/nnlo.yaml"
    params:
        options=lambda wildcards: PLAN.fetch_options(wildcards.dataset),
    message:
        "fetch {wildcards.dataset}"
    shell:
        "python scripts/fetch.py --dataset {wildcards.dataset} {params.options}"
        " --target data/{wildcards.dataset}/raw 2>&1 | tee -i {log}"


# Convert one file of a large data set (TFRecords); the jobs of different files may run in parallel.
rule convert_shard:
    input:
        "data/{dataset}/raw/fetched.json",
    output:
        update("data/{dataset}/{format}/shards/{shard}.json"),
    log:
        "logs/{dataset}/{format}/{shard}.log",
    wildcard_constraints:
        dataset="[^/]+",
        format="hdf5|npz",
    group:
        "convert"
    conda:
        "../envs/nnlo.yaml"
    params:
        options=lambda wildcards: PLAN.convert_options(
            wildcards.dataset, wildcards.format
        ),
    message:
        "convert shard {wildcards.shard} of {wildcards.dataset}"
    shell:
        "python scripts/convert.py --dataset {wildcards.dataset} --raw data/{wildcards.dataset}/raw"
        " --target data/{wildcards.dataset}/{wildcards.format} --format {wildcards.format}"
        " --shard {wildcards.shard} {params.options} 2>&1 | tee -i {log}"


# Convert the missing shards, then write the manifest, which completes the store.
rule convert:
    input:
        "data/{dataset}/raw/fetched.json",
        lambda wildcards: expand(
            "data/{dataset}/{format}/shards/{shard}.json",
            shard=PLAN.shards[wildcards.dataset],
            **wildcards,
        ),
    output:
        update("data/{dataset}/{format}/manifest.json"),
    log:
        "logs/{dataset}/convert-{format}.log",
    wildcard_constraints:
        dataset="[^/]+",
        format="hdf5|npz",
    conda:
        "../envs/nnlo.yaml"
    threads: 2
    params:
        options=lambda wildcards: PLAN.convert_options(
            wildcards.dataset, wildcards.format
        ),
    message:
        "convert {wildcards.dataset} to {wildcards.format}"
    shell:
        "python scripts/convert.py --dataset {wildcards.dataset} --raw data/{wildcards.dataset}/raw"
        " --target data/{wildcards.dataset}/{wildcards.format} --format {wildcards.format}"
        " --processes {threads} {params.options} 2>&1 | tee -i {log}"
