# Fairness of responses to parallel contexts: models that are trained here, as they are and debiased, and models of the
# hub; one notebook a run. The section `responses` of a configuration says which.
RESPONSES = config.get("responses", {})
ANSWERED = {(r["model"], r["method"], r["bias_type"]) for r in records("response_fairness", RESPONSES)}


def trained_runs():
    "Kind and bias type of each run that trains, without those whose records are all there"
    kinds, types = RESPONSES.get("kinds", []), RESPONSES.get("bias_types", [])
    names, corpus = {"original": "baseline"}, RESPONSES.get("corpus", "")
    of = "" if corpus == "twitter-conversations" else f"-{Path(corpus).stem}"  # as the notebook names them
    for kind, bias_type in itertools.product(kinds, types):
        wanted = {(f"{kind}-{RESPONSES['size']}{of}", names.get(m, m), bias_type) for m in RESPONSES["methods"]}
        if not wanted <= ANSWERED:
            yield f"{kind}-{bias_type}"


ASKED_MODELS = by_slug(RESPONSES.get("models", []), "models")
ANSWERED_MODELS = {(m, b) for m, method, b in ANSWERED if method == "baseline"}
RESPONSE_RUNS = [f"{RUNS}/responses/{run}.ipynb" for run in trained_runs()]
RESPONSE_RUNS += [
    f"{RUNS}/responses/model-{name}.ipynb"
    for name, model in ASKED_MODELS.items()
    if not {(model, b) for b in RESPONSES["bias_types"]} <= ANSWERED_MODELS
]
ASKING = ""
if RESPONSES:
    texts = ("size", "corpus", "contexts_of", "split", "mode", "offence", "lemmas", "results")  # others are numbers
    asked = {k: v for k, v in RESPONSES.items() if not isinstance(v, list)}
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
        methods=" ".join(RESPONSES.get("methods", [])),
        asking=ASKING,
    wildcard_constraints:
        kind="seq2seq|ranker",
        of="gender|race",
    threads: THREADS
    resources:
        figures=1, # every run redraws the same tables and figures: one at a time
    shell:
        "OMP_NUM_THREADS={threads} papermill nbs/papers/dialoguefairness.ipynb {output:q} -p kinds {wildcards.kind}"
        " -p bias_type {wildcards.of} -p methods {params.methods:q} {params.asking}"


# A model of the hub, a packaged one, or a folder: asked for all bias types.
rule model_responses:
    input:
        "nbs/papers/dialoguefairness.ipynb",
        sorted(glob("data/paper/dialoguefairness/*")),
    output:
        RUNS + "/responses/model-{model}.ipynb",
    params:
        model=lambda w: ASKED_MODELS[w.model],
        types=" ".join(RESPONSES.get("bias_types", [])),
        asking=ASKING,
    threads: THREADS
    resources:
        figures=1,
    shell:
        "OMP_NUM_THREADS={threads} papermill nbs/papers/dialoguefairness.ipynb {output:q} -r kinds ''"
        " -r model {params.model:q} -p bias_type {params.types:q} {params.asking}"
