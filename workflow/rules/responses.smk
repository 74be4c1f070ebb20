# Fairness of responses to parallel contexts: models that are trained here, as they are and debiased, and models of the
# hub; one notebook a run. The section `responses` of a configuration says which.
RESPONSES = config.get("responses", {})
ANSWERS_KEPT = records("response_fairness", RESPONSES)
ANSWERED = {(r["model"], r["method"], r["bias_type"]) for r in ANSWERS_KEPT}


def methods_of(kind):
    "Of training: one list for all kinds, or a list by kind"
    methods = RESPONSES.get("methods", [])
    return methods.get(kind, []) if isinstance(methods, dict) else methods


def trained_runs():
    "Kind and bias type of each run that trains, without those whose records are all there"
    kinds, types = RESPONSES.get("kinds", []), RESPONSES.get("bias_types", [])
    names = {"original": "baseline"}
    if kinds:  # imports torch
        from redditbias_repro.debias.dialogue import run_name
    how = {k: RESPONSES[k] for k in ("size", "corpus", "epochs", "dialogues_n", "settings", "vectors") if k in RESPONSES}
    for kind, bias_type in itertools.product(kinds, types):
        wanted = {(run_name(kind, **how), names.get(m, m), bias_type) for m in methods_of(kind)}
        if not wanted <= ANSWERED:
            yield f"{kind}-{bias_type}"


ASKED_MODELS = by_slug(RESPONSES.get("models", []), "models")
ANSWERED_MODELS = {(m, b) for m, method, b in ANSWERED if method == "baseline"}


def trained_as(r):
    "Model, method, bias type and seed of the debiasing behind a record; None where there was none"
    how = r["provenance"].get("training") or {}
    of = how.get("bias_type")
    return (how.get("base_model"), how["method"], split_bias_type(of), how["seed"], r["bias_type"]) if of else None


def debiased_name(d):
    "A debiased model as part of a path"
    return "-".join([slug(d["model"]), d["method"], slug(d["bias_type"]), str(d["seed"])])


DEBIASED = {debiased_name(d): d for d in RESPONSES.get("debiased", [])}
DEBIASED_KEPT = set(map(trained_as, ANSWERS_KEPT))
ASKED_FOLDERS = {name: f"{RUNS}/responses/models/{name}" for name in DEBIASED}
RESPONSE_RUNS = [f"{RUNS}/responses/{run}.ipynb" for run in trained_runs()]
RESPONSE_RUNS += [
    f"{RUNS}/responses/model-{name}.ipynb"
    for name, model in ASKED_MODELS.items()
    if not {(model, b) for b in RESPONSES["bias_types"]} <= ANSWERED_MODELS
]
RESPONSE_RUNS += [
    f"{RUNS}/responses/model-{name}.ipynb"
    for name, d in DEBIASED.items()
    if not {(d["model"], d["method"], split_bias_type(d["bias_type"]), d["seed"], b) for b in RESPONSES["bias_types"]}
    <= DEBIASED_KEPT
]
ASKING = ""
if RESPONSES:
    texts = ("size", "corpus", "contexts_of", "split", "mode", "offence", "lemmas", "results", "settings", "vectors")  # others are numbers
    asked = {k: v for k, v in RESPONSES.items() if not isinstance(v, (list, dict))}
    where = "figures/dialoguefairness" if RESPONSES["results"] == "results" else f"{RUNS}/responses"
    asked |= {"figures_dir": where, "models_dir": f"{RUNS}/responses/models"}
    named = {"results": "results_dir"}
    ASKING = " ".join(
        f"{'-r' if k in texts else '-p'} {named.get(k, k)} {shlex.quote(str(v))}" for k, v in asked.items()
    )


# One kind of model for one bias type: trained as it is and by each method, then asked. The model as it is is trained by
# the run that comes first and found by the others.
rule responses:
    input:
        "nbs/papers/dialoguefairness.ipynb",
        sorted(glob("data/paper/dialoguefairness/*")),
    output:
        RUNS + "/responses/{kind}-{of}.ipynb",
    params:
        methods=lambda w: " ".join(methods_of(w.kind)),
        asking=ASKING,
    wildcard_constraints:
        kind="seq2seq|ranker",
        of="gender|race",
    threads: THREADS
    resources:
        figures=1, # every run redraws the same tables and figures: one at a time
    message:
        "dialoguefairness: {wildcards.kind} trained and asked for {wildcards.of}"
    shell:
        "OMP_NUM_THREADS={threads} papermill nbs/papers/dialoguefairness.ipynb {output:q} -p kinds {wildcards.kind}"
        " -p bias_type {wildcards.of} -p methods {params.methods:q} {params.asking}"


# A model of the hub or a packaged one, debiased so that it can be asked beside the model before.
rule debiased_model:
    input:
        TRAINING[1:],
    output:
        directory(RUNS + "/responses/models/{debiased}"),
    params:
        how=lambda w: DEBIASED[w.debiased],
    wildcard_constraints:
        debiased="|".join(map(re.escape, DEBIASED)) or "none",
    threads: THREADS
    message:
        "{wildcards.debiased} trained"
    shell:
        "OMP_NUM_THREADS={threads} redditbias debias --model {params.how[model]:q} --method {params.how[method]}"
        " --bias-type {params.how[bias_type]:q} --corpus {config[corpus]:q} --seed {params.how[seed]} --out {output:q} --replace"


# A model of the hub, a packaged one, a folder, or one that was debiased above: asked for all bias types.
rule model_responses:
    input:
        lambda w: ASKED_FOLDERS.get(w.model, []),
        "nbs/papers/dialoguefairness.ipynb",
        sorted(glob("data/paper/dialoguefairness/*")),
    output:
        RUNS + "/responses/model-{model}.ipynb",
    params:
        model=lambda w: ASKED_FOLDERS.get(w.model) or ASKED_MODELS[w.model],
        types=" ".join(RESPONSES.get("bias_types", [])),
        asking=ASKING,
    threads: THREADS
    resources:
        figures=1,
    message:
        "dialoguefairness: {wildcards.model} asked"
    shell:
        "OMP_NUM_THREADS={threads} papermill nbs/papers/dialoguefairness.ipynb {output:q} -r kinds ''"
        " -r model {params.model:q} -p bias_type {params.types:q} {params.asking}"
