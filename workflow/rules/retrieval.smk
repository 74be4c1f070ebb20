# Candidates from dump files of Reddit.
DUMPS = {Path(p).name: p for p in sorted(glob(RETRIEVAL.get("dumps", "")))}
RETRIEVED = {Path(b).stem: b for b in RETRIEVAL.get("bias_types", [])}
# Without an end of the period dumps are read whole.
PERIOD = {k: RETRIEVAL[k] for k in ("before", "years") if k in RETRIEVAL and "before" in RETRIEVAL}

if len(DUMPS) < len(glob(RETRIEVAL.get("dumps", ""))):
    raise WorkflowError(f"retrieval.dumps {RETRIEVAL['dumps']!r}: several files have the same name")
if RETRIEVAL and not DUMPS:
    raise WorkflowError(f"retrieval.dumps {RETRIEVAL['dumps']!r}: there are no such files")


# Candidates of one dump file: months are scanned side by side.
rule scan:
    input:
        dump=lambda w: DUMPS[w.dump],
    output:
        RUNS + "/scanned/{dump}.parquet",
    params:
        options=" ".join([*(options(bias_type=b) for b in RETRIEVED.values()), options(**PERIOD)]),
    message:
        "candidates of {wildcards.dump}"
    shell:
        "redditbias retrieve {input.dump:q} --out {output:q} {params.options}"


# What was scanned, merged, each comment once, cleaned and cut to phrases.
rule phrases:
    input:
        expand(RUNS + "/scanned/{dump}.parquet", dump=DUMPS),
    output:
        RUNS + "/retrieved/{name}.ipynb",
    params:
        given=lambda w: given(bias_type=RETRIEVED[w.name], source=f"{RUNS}/scanned", out_dir=RETRIEVAL["out"]),
    message:
        "phrases of {wildcards.name}"
    shell:
        "papermill nbs/02_retrieval.ipynb {output:q} {params.given}"
