# Corpora and model into the cache, checked. Only the corpus of that name cannot do without the released files.
rule fetch:
    output:
        touch(RUNS + "/fetched/{model}"),
    params:
        model=lambda w: MODELS[w.model],
    shell:
        "(redditbias fetch || test {config[corpus]:q} = auto -o {config[corpus]:q} = queries)"
        " && redditbias fetch --model {params.model:q}"


# A paper's tables and figures for one model, debiased or not.
rule paper:
    input:
        RUNS + "/fetched/{model}",
        "nbs/papers/{paper}.ipynb",
        lambda w: sorted(glob(f"data/paper/{w.paper}/*") + glob("data/published/*")),
        PACKAGE,
        GRID_RUNS if GRID.get("results") == "results" else [],
        TASK_RUNS if TALK.get("results") == "results" else [],
    output:
        RUNS + "/{paper}/{model}.ipynb",
    params:
        model=lambda w: MODELS[w.model],
    resources:
        figures=1, # every run redraws the same tables and figures: one at a time
    shell:
        "papermill nbs/papers/{wildcards.paper}.ipynb {output:q}"
        " -p model {params.model:q} -p corpus {config[corpus]:q} -p seed {config[seed]}"
