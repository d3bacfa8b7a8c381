# Fetch the original files of each data set and convert them once to a store. The name of a store ends with a key of its
# settings, of the code of a user's reader, and of the original files. `update`: Snakemake must not delete files that another
# Snakemake, of another experiment, has written since and trains with.

STORE = "data/{dataset}/{store}"


wildcard_constraints:
    dataset="[^/]+",
    raw="raw(-[0-9a-f]{12})?",
    store="(hdf5|npz)-[0-9a-f]{12}",


rule stores:
    input:
        PLAN.manifests,


rule fetch:
    output:
        update("data/{dataset}/{raw}/fetched.json"),
    log:
        "logs/{dataset}/{raw}/fetch.log",
    conda:
        "../envs/nnlo.yaml"
    params:
        options=lambda wildcards: PLAN.fetch_options(wildcards.dataset, wildcards.raw),
    message:
        "fetch {wildcards.dataset}"
    shell:
        f"python {SCRIPTS}/fetch.py"
        " --dataset {wildcards.dataset:q} {params.options}"
        " --target data/{wildcards.dataset:q}/{wildcards.raw:q} 2>&1 | tee -i {log:q}"


# Convert one file of a large data set (TFRecords); the jobs of different files may run in parallel.
rule convert_shard:
    input:
        lambda wildcards: PLAN.raw_record(f"{wildcards.dataset}/{wildcards.store}"),
    output:
        update(f"{STORE}/shards/{{shard}}.json"),
    log:
        "logs/{dataset}/{store}/{shard}.log",
    group:
        "convert"
    conda:
        "../envs/nnlo.yaml"
    params:
        options=lambda wildcards: PLAN.convert_options(
            f"{wildcards.dataset}/{wildcards.store}"
        ),
    message:
        "convert shard {wildcards.shard} of {wildcards.dataset}"
    shell:
        f"python {SCRIPTS}/convert.py"
        " --dataset {wildcards.dataset:q} {params.options}"
        " --shard {wildcards.shard:q} 2>&1 | tee -i {log:q}"


# Convert the missing shards, then write the manifest, which completes the store.
rule convert:
    input:
        lambda wildcards: PLAN.raw_record(f"{wildcards.dataset}/{wildcards.store}"),
        lambda wildcards: expand(
            f"{STORE}/shards/{{shard}}.json",
            shard=PLAN.shards[f"{wildcards.dataset}/{wildcards.store}"],
            **wildcards,
        ),
    output:
        update(f"{STORE}/manifest.json"),
    log:
        "logs/{dataset}/convert-{store}.log",
    conda:
        "../envs/nnlo.yaml"
    threads: 2
    params:
        options=lambda wildcards: PLAN.convert_options(
            f"{wildcards.dataset}/{wildcards.store}"
        ),
    message:
        "convert {wildcards.dataset} to {wildcards.store}"
    shell:
        f"python {SCRIPTS}/convert.py"
        " --dataset {wildcards.dataset:q} {params.options}"
        " --processes {threads:q} 2>&1 | tee -i {log:q}"
