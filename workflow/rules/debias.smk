# The grid of debiasing runs, and the search of their hyper-parameters.
GRID = config.get("debias", {})
SEARCH = GRID.get("search", {})
TRIED = ("batch_size", "grad_accum", "lambda_lm", "lambda_d")
# A debiasing run takes minutes to hours: it is done anew only where the code changed that it was trained by.
TRAINING = ["nbs/05_debias.ipynb", *(f"redditbias_repro/debias/{m}.py" for m in ("losses", "finetune", "training"))]
SEARCH_RUN = "b{batch_size}-a{grad_accum}-l{lambda_lm}-d{lambda_d}"


def search_runs():
    "Every combination that the search tries, by its name in paths"
    every = [dict(zip(TRIED, values)) for values in itertools.product(*(SEARCH.get(k, []) for k in TRIED))]
    return {SEARCH_RUN.format(**values): values for values in every}


def done_before(r):
    "What tells a record from others in the grid: model, paper, bias type, method"
    return (r["model"], r["paper"], r["bias_type"], r["method"])


COMBINATIONS = search_runs()
SPECIAL = "-p special_tokens True" if GRID.get("special_tokens") else ""
MIXED = " -p bf16 True" if GRID.get("bf16") else ""
REFERENCES = f" -r references {shlex.quote(GRID['references'])}" if GRID.get("references") else ""
# Whether perplexities are read with the tokenizer's special tokens: a search with them is another one than without.
READ_SPECIAL = bool(GRID.get("special_tokens"))
SEARCHED = {
    (*done_before(r), *(r[k] for k in TRIED)): r["chosen"]
    for r in records("search", GRID)
    if bool(*kept(r, "special_tokens")) == READ_SPECIAL
}


def searched_type(bias_type):
    "The bias type whose search a run takes its hyper-parameters from; None: from the configuration"
    return bias_type if bias_type in SEARCH.get("bias_types", []) else SEARCH.get("others")


def is_chosen(r):
    "Whether a run of the grid, trained by this objective, has what its search chose, once that is complete"
    if "objective" not in r["provenance"]["training"]:
        return False
    names = {split_bias_type(b): b for b in TYPES.values()}
    searched = searched_type(names.get((r["paper"], r["bias_type"])))
    if r["method"] not in SEARCH.get("methods", []) or not searched:
        return True
    at = (r["model"], *split_bias_type(searched), r["method"])
    tried = tuple(r["provenance"]["training"][k] for k in TRIED)
    complete = all((*at, *values.values()) in SEARCHED for values in COMBINATIONS.values())
    return complete and SEARCHED.get((*at, *tried), False)


MEASURED = {(*done_before(r), r["train_seed"]) for r in records("training", GRID) if is_chosen(r)}
GRID_RUNS = [
    f"{RUNS}/debias/{model}/{slug(b)}-{m}-{s}.ipynb"
    for model, name in MODELS.items()
    for b, m, s in itertools.product(GRID.get("bias_types", []), GRID.get("methods", []), GRID.get("seeds", []))
    if (name, *split_bias_type(b), m, s) not in MEASURED
]


# Only the search and its choices.
rule search:
    input:
        expand(
            RUNS + "/chosen/{model}/{bias_type}-{method}.yaml",
            model=MODELS,
            bias_type=[slug(b) for b in SEARCH.get("bias_types", [])],
            method=SEARCH.get("methods", []),
        ),


# One run of the search, measured on the validation pairs; its model is kept until one is chosen, if there is room.
rule search_run:
    input:
        RUNS + "/fetched/{model}",
        TRAINING,
    output:
        notebook=RUNS + "/search/{model}/{bias_type}-{method}/{search_run}/run.ipynb",
        results=directory(RUNS + "/search/{model}/{bias_type}-{method}/{search_run}/results"),
    params:
        model=lambda w: MODELS[w.model],
        bias_type=lambda w: TYPES[w.bias_type],
        tried=lambda w: " ".join(f"-p {k} {v}" for k, v in COMBINATIONS[w.search_run].items()),
        grid=GRID,
        folder=RUNS + "/search/{model}/{bias_type}-{method}/{search_run}/model",
        keep=SEARCH.get("keep_models", False),
    threads: THREADS
    message:
        "{wildcards.model} debiased by {wildcards.method} for {wildcards.bias_type}, tried with {wildcards.search_run}"
    shell:
        TRAIN + " nbs/05_debias.ipynb {output.notebook:q} {params.tried}"
        " -p method {wildcards.method} -p bias_type {params.bias_type:q} -p model {params.model:q}"
        " -p corpus {config[corpus]:q} -p split valid -p epochs {params.grid[epochs]} -p phrases {params.grid[phrases]}"
        " -p lmp_sentences {SEARCH[lmp_sentences]} -p seed {config[seed]} {SPECIAL}{MIXED}{REFERENCES}"
        " -p out_dir {params.folder:q} -p keep_model {params.keep} -p replace True -p results_dir {output.results:q}"


def tried(w):
    "Results of every combination that the search tries for a bias type and method, but for those that records have"
    at = (MODELS[w.model], *split_bias_type(TYPES[w.bias_type]), w.method)
    folder = f"{RUNS}/search/{w.model}/{w.bias_type}-{w.method}"
    return [f"{folder}/{run}/results" for run, v in COMBINATIONS.items() if (*at, *v.values()) not in SEARCHED]


# The hyper-parameters that a search chooses, as papermill reads them, and a record of each run that it tried. A chosen
# model that was kept becomes that of the grid, which `debias` finds finished; the others go.
rule chosen:
    input:
        tried,
    output:
        RUNS + "/chosen/{model}/{bias_type}-{method}.yaml",
    params:
        grid=GRID,
        model=RUNS + f"/models/{{model}}/{{bias_type}}-{{method}}-{config['seed']}",
    message:
        "hyper-parameters of {wildcards.method} for {wildcards.bias_type} chosen"
    run:
        import shutil

        import yaml

        from redditbias_repro.metrics.choice import choose

        bias_type, known = TYPES[wildcards.bias_type], MODELS[wildcards.model] if SEARCHED else None
        bound, results = params.grid["search"].get("max_lmp_rise"), params.grid["results"]
        values = choose(input, wildcards.method, bias_type, bound, results, known, READ_SPECIAL)
        folders = {Path(path).parent.name: Path(path).with_name("model") for path in input}
        kept = folders.get(SEARCH_RUN.format(**values))
        if kept and kept.is_dir():
            shutil.rmtree(params.model, ignore_errors=True)
            Path(params.model).parent.mkdir(parents=True, exist_ok=True)
            kept.rename(params.model)
        for folder in folders.values():
            shutil.rmtree(folder, ignore_errors=True)
        Path(output[0]).write_text(yaml.safe_dump(values))


# Those of the configuration, for what no search covers.
rule configured:
    output:
        RUNS + "/chosen/configured.yaml",
    params:
        values=GRID.get("hyperparameters", {}),
    run:
        import yaml

        Path(output[0]).write_text(yaml.safe_dump(params.values))


def hyperparameters(w):
    "The file with those of a bias type and method: of its own search, of the one that others take theirs from, or configured"
    searched = searched_type(TYPES[w.bias_type])
    if w.method not in SEARCH.get("methods", []) or not searched:
        return f"{RUNS}/chosen/configured.yaml"
    return f"{RUNS}/chosen/{w.model}/{slug(searched)}-{w.method}.yaml"


# One debiasing run of the grid, measured before and after on the test pairs and the references.
rule debias:
    input:
        RUNS + "/fetched/{model}",
        TRAINING,
        chosen=hyperparameters,
    output:
        RUNS + "/debias/{model}/{bias_type}-{method}-{seed}.ipynb",
    params:
        model=lambda w: MODELS[w.model],
        bias_type=lambda w: TYPES[w.bias_type],
        grid=GRID,
        attributes=GRID.get("attributes", False),
    threads: THREADS
    message:
        "{wildcards.model} debiased by {wildcards.method} for {wildcards.bias_type}, seed {wildcards.seed}"
    shell:
        TRAIN + " nbs/05_debias.ipynb {output:q} -f {input.chosen:q}"
        " -p method {wildcards.method} -p bias_type {params.bias_type:q} -p model {params.model:q}"
        " -p corpus {config[corpus]:q} -p epochs {params.grid[epochs]} -p phrases {params.grid[phrases]}"
        " -p lmp_sentences {params.grid[lmp_sentences]} -p seed {wildcards.seed} -p attributes {params.attributes} {SPECIAL}{MIXED}{REFERENCES}"
        " -p out_dir {RUNS}/models/{wildcards.model}/{wildcards.bias_type}-{wildcards.method}-{wildcards.seed}"
        " -p replace True -p results_dir {params.grid[results]:q}"
