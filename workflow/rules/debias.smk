# The grid of debiasing runs, and the search of their hyper-parameters.
TRIED = ("batch_size", "grad_accum", "lambda_lm", "lambda_d")
# A debiasing run takes minutes to hours: it is done anew only where the code changed that it was trained by.
TRAINING = [f"redditbias_repro/debias/{m}.py" for m in ("losses", "finetune", "projection", "training")]
# Every combination that the search tries, by its name in paths.
COMBINATIONS = {
    "b{}-a{}-l{}-d{}".format(*values): dict(zip(TRIED, values))
    for values in itertools.product(*(SEARCH.get(k, []) for k in TRIED))
}


def shown(method):
    "A method as tables name it, with the rank of its adapter and what chose its weights if they are said"
    method += f"-LoRA{GRID['lora_rank']}" if "lora_rank" in GRID else ""
    return f"{method} ({GRID['chosen_by']})" if GRID.get("chosen_by") else method


def searched(model, bias_type, method, **values):
    "A record of the search: another one with the tokenizer's special tokens, another bound or another criterion"
    run = {"model": model, "method": shown(method), "special_tokens": GRID.get("special_tokens") or None, **OF[bias_type]}
    run["max_lmp_rise"] = SEARCH.get("max_lmp_rise")
    run["by"] = None if SEARCH.get("by") == "t" else SEARCH.get("by")
    return measured(GRID, metric="search", **run, **values)


def searched_type(bias_type, method):
    "The bias type whose search a run takes its hyper-parameters from; None: from the configuration"
    if method in SEARCH.get("methods", []):
        return bias_type if bias_type in SEARCH["bias_types"] else SEARCH.get("others")


def trained(model, bias_type, method, seed):
    "Whether a run of the grid, by an objective that has a name, with what its search chose, was trained and measured"
    run = {"model": model, "method": shown(method), "train_seed": seed, **OF[bias_type]}
    run["provenance.training"] = lambda training: "objective" in training
    if of := searched_type(bias_type, method):
        chosen = searched(model, of, method, chosen=True)
        if not chosen or not all(searched(model, of, method, **values) for values in COMBINATIONS.values()):
            return False
        run |= {f"provenance.training.{k}": chosen[k] for k in TRIED}
    metrics = ("training", "association") if GRID.get("association") else ("training",)
    return all(measured(GRID, metric=metric, **run) for metric in metrics)


GRID_RUNS = [
    f"{RUNS}/debias/{model}/{slug(b)}-{m}-{s}.ipynb"
    for (model, name), b, m, s in itertools.product(MODELS.items(), *every(GRID))
    if not trained(name, b, m, s)
]


def hyperparameters(w):
    "The file with those that a search chose, of a run's bias type or of the one that others take theirs from; or none"
    of = searched_type(TYPES[w.bias_type], w.method)
    return f"{RUNS}/chosen/{w.model}/{slug(of)}-{w.method}.yaml" if of else []


def training(w, **more):
    "Parameters of a debiasing run"
    run = {"method": w.method, "bias_type": TYPES[w.bias_type], "model": MODELS[w.model], "corpus": config["corpus"]}
    how = ("epochs", "phrases", "lmp_sentences", "references", "special_tokens", "bf16", "chosen_by")
    how += ("lora_rank", "learning_rate")
    return given(**run | {k: GRID[k] for k in how if k in GRID} | more, replace=True)


def of_grid(w, input):
    folder = f"{RUNS}/models/{w.model}/{w.bias_type}-{w.method}-{w.seed}"
    also = {k: GRID.get(k, False) for k in ("association", "attributes")}
    own = {"seed": int(w.seed), **also, "results_dir": GRID["results"]}
    if input.chosen:
        return f"-f {shlex.quote(input.chosen)} " + training(w, **own, out_dir=folder)
    return training(w, **GRID.get("hyperparameters", {}), **own, out_dir=folder)


def of_search(w, output):
    "Its model is kept until one is chosen, if there is room"
    places = {"out_dir": str(Path(output.results).with_name("model")), "results_dir": output.results}
    places |= {"keep_model": SEARCH.get("keep_models", False)}
    places["association"] = SEARCH.get("by") == "association"
    own = {"split": "valid", "lmp_sentences": SEARCH["lmp_sentences"], "seed": config["seed"]}
    return training(w, **COMBINATIONS[w.search_run], **own, **places)


# One debiasing run of the grid, measured before and after on the test pairs and the references.
rule debias:
    input:
        RUNS + "/fetched/{model}",
        TRAINING,
        notebook="nbs/05_debias.ipynb",
        chosen=hyperparameters,
    output:
        notebook=RUNS + "/debias/{model}/{bias_type}-{method}-{seed}.ipynb",
    params:
        given=of_grid,
    threads: THREADS
    message:
        "{wildcards.model} debiased by {wildcards.method} for {wildcards.bias_type}, seed {wildcards.seed}"
    shell:
        KEEP_MEMORY + " OMP_NUM_THREADS={threads} papermill {input.notebook} {output.notebook:q} {params.given}"


# One run of the search, measured on the validation pairs.
use rule debias as search_run with:
    input:
        RUNS + "/fetched/{model}",
        TRAINING,
        notebook="nbs/05_debias.ipynb",
    output:
        notebook=RUNS + "/search/{model}/{bias_type}-{method}/{search_run}/run.ipynb",
        results=directory(RUNS + "/search/{model}/{bias_type}-{method}/{search_run}/results"),
    params:
        given=of_search,
    message:
        "{wildcards.model} debiased by {wildcards.method} for {wildcards.bias_type}, tried with {wildcards.search_run}"


# The hyper-parameters that a search chooses, as papermill reads them, and a record of each run that it tried. A chosen
# model that was kept becomes that of the grid, which `debias` finds finished; the others go.
rule chosen:
    input:
        lambda w: [
            f"{RUNS}/search/{w.model}/{w.bias_type}-{w.method}/{run}/results"
            for run, values in COMBINATIONS.items()
            if not searched(MODELS[w.model], TYPES[w.bias_type], w.method, **values)
        ],
    output:
        RUNS + "/chosen/{model}/{bias_type}-{method}.yaml",
    params:
        grid=GRID,
        bias_type=lambda w: TYPES[w.bias_type],
        known=lambda w: MODELS[w.model] if config.get("resume") else None,
        runs=COMBINATIONS,
        model=RUNS + f"/models/{{model}}/{{bias_type}}-{{method}}-{config['seed']}",
    message:
        "hyper-parameters of {wildcards.method} for {wildcards.bias_type} chosen"
    script:
        "../choose.py"
