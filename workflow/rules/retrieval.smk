# Candidates from dump files of Reddit.
RETRIEVAL = config.get("retrieval", {})
DUMPS = {Path(p).name: p for p in sorted(glob(RETRIEVAL.get("dumps", "")))}
RETRIEVED = {Path(b).stem: b for b in RETRIEVAL.get("bias_types", [])}

if len(DUMPS) < len(glob(RETRIEVAL.get("dumps", ""))):
    raise WorkflowError(f"retrieval.dumps {RETRIEVAL['dumps']!r}: several files have the same name")
if RETRIEVAL and not DUMPS:
    raise WorkflowError(f"retrieval.dumps {RETRIEVAL['dumps']!r}: there are no such files")


def period():
    "Options of the scan; without an end of the period dumps are read whole"
    return " ".join(f"--{k} {RETRIEVAL[k]}" for k in ("before", "years") if k in RETRIEVAL and "before" in RETRIEVAL)


# Candidates of one dump file: months are scanned side by side.
rule scan:
    input:
        dump=lambda w: DUMPS[w.dump],
    output:
        RUNS + "/scanned/{dump}.parquet",
    params:
        types=" ".join(f"--bias-type {b}" for b in RETRIEVED.values()),
        period=period(),
    message:
        "candidates of {wildcards.dump}"
    shell:
        "redditbias retrieve {input.dump:q} --out {output:q} {params.types} {params.period}"


# What was scanned, merged, each comment once, cleaned and cut to phrases.
rule phrases:
    input:
        expand(RUNS + "/scanned/{dump}.parquet", dump=DUMPS),
    output:
        RUNS + "/retrieved/{name}.ipynb",
    params:
        bias_type=lambda w: RETRIEVED[w.name],
        out=RETRIEVAL.get("out", ""),
    message:
        "phrases of {wildcards.name}"
    shell:
        "papermill nbs/02_retrieval.ipynb {output:q}"
        " -p bias_type {params.bias_type:q} -p source {RUNS}/scanned -p out_dir {params.out:q}"


rule retrieve:
    input:
        expand(RUNS + "/retrieved/{name}.ipynb", name=RETRIEVED),
