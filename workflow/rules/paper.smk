# Corpora and model into the cache, checked. Only a paper's release cannot do without the released files.
rule fetch:
    output:
        touch(RUNS + "/fetched/{model}"),
    params:
        model=lambda w: MODELS[w.model],
        needed=config["corpus"] in released_papers(),
        paper=config["corpus"] if config["corpus"] in released_papers() else "",
        kind="--kind masked" if ASKED.get("reading") == "span" else "",
    message:
        "corpora and model: {wildcards.model}"
    shell:
        "(redditbias fetch {params.paper} || test {params.needed} = False)"
        " && redditbias fetch --model {params.model:q} {params.kind}"


# Whether the grid's records are those that tables, figures and README are made from; else the notebook decides by the model.
COMMITTED = GRID.get("results") == "results"


# A paper's tables and figures for one model, debiased or not.
rule paper:
    input:
        RUNS + "/fetched/{model}",
        "nbs/papers/{paper}.ipynb",
        lambda w: sorted(glob(f"data/paper/{w.paper}/*") + glob("data/published/*")),
        PACKAGE,
        GRID_RUNS if COMMITTED else [],
        TASK_RUNS if TALK.get("results") == "results" else [],
    output:
        RUNS + "/{paper}/{model}.ipynb",
    params:
        model=lambda w: MODELS[w.model],
        where=lambda w: f"-p results_dir results -p figures_dir figures/{w.paper}" if COMMITTED else "",
    resources:
        figures=1, # every run redraws the same tables and figures: one at a time
    message:
        "{wildcards.paper}: {wildcards.model} measured, tables and figures"
    shell:
        "papermill nbs/papers/{wildcards.paper}.ipynb {output:q}"
        " -p model {params.model:q} -p corpus {config[corpus]:q} -p seed {config[seed]} {params.where} {SPECIAL}"


# A paper's tables and figures from committed records and its released files, without a model.
rule tables:
    input:
        "nbs/papers/{paper}.ipynb",
        lambda w: sorted(glob(f"data/paper/{w.paper}/*") + glob(f"results/{w.paper}/**/*.json", recursive=True)),
        PACKAGE,
    output:
        RUNS + "/tables-{paper}.ipynb",
    resources:
        figures=1, # as above
    message:
        "{wildcards.paper}: tables and figures from records"
    shell:
        "papermill nbs/papers/{wildcards.paper}.ipynb {output:q} -r model ''"


# The statements of all papers, checked again by committed records, after whatever makes records.
rule claims:
    input:
        expand(RUNS + "/{paper}/{model}.ipynb", paper=PAPERS, model=MODELS),
        "nbs/papers/claims.ipynb",
        glob("data/paper/*/*"),
        glob("results/**/*.json", recursive=True),
        PACKAGE,
    output:
        RUNS + "/claims.ipynb",
    resources:
        figures=1, # as above
    message:
        "statements of all papers checked by records"
    shell:
        "papermill nbs/papers/claims.ipynb {output:q}"
