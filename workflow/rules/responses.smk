# Fairness of responses to parallel contexts: models that are trained here, as they are and debiased, and others.
GROUPS, PLACE = RESPONSES.get("bias_types", []), f"{RUNS}/responses"
DEBIASED = RESPONSES.get("debiased", [])
DEBIASED = {"-".join([slug(d["model"]), d["method"], slug(d["bias_type"]), str(d["seed"])]): d for d in DEBIASED}


def responds(run, says, reads, records, **parameters):
    "A run of the notebook, whose records have these fields"
    settings = {k: v for k, v in RESPONSES.items() if not isinstance(v, (list, dict))}
    done = all(measured(RESPONSES, metric="response_fairness", **fields) for fields in records)
    parameters |= {"models_dir": f"{PLACE}/models"}
    draws(f"responses/{run}", "dialoguefairness", f"dialoguefairness: {says}", reads, settings, PLACE, done, **parameters)


# One kind of model for one bias type: trained as it is and by each method, then asked. The model as it is is trained by
# the run that comes first and found by the others.
for kind, group in itertools.product(RESPONSES.get("kinds", []), GROUPS):
    from redditbias_repro.debias.dialogue import run_name  # imports torch

    methods = RESPONSES["methods"]  # one list for all kinds, or a list by kind
    methods = methods.get(kind, []) if isinstance(methods, dict) else methods
    how = {k: RESPONSES[k] for k in ("size", "corpus", "epochs", "dialogues_n", "settings", "vectors") if k in RESPONSES}
    of = {"model": run_name(kind, **how), "bias_type": group}
    kept = [of | {"method": "baseline" if m == "original" else m} for m in methods]
    asked = {"kinds": kind, "bias_type": group, "methods": " ".join(methods)}
    responds(f"{kind}-{group}", f"{kind} trained and asked for {group}", [], kept, **asked)


# A model of the hub, a packaged one, a folder, or one that is debiased below: asked for all bias types.
ORIGINS = {name: {"model": m, "method": "baseline"} for name, m in by_slug(RESPONSES.get("models", []), "models").items()}
for name, d in DEBIASED.items():
    training = {"base_model": d["model"], "bias_type": "/".join(OF[d["bias_type"]].values())}
    training |= {"method": d["method"], "seed": d["seed"]}
    ORIGINS[name] = {f"provenance.training.{k}": v for k, v in training.items()}
for name, origin in ORIGINS.items():
    folder = [f"{PLACE}/models/{name}"] if name in DEBIASED else []
    asked = {"kinds": "", "model": folder[0] if folder else origin["model"], "bias_type": " ".join(GROUPS)}
    responds(f"model-{name}", f"{name} asked", folder, [origin | {"bias_type": group} for group in GROUPS], **asked)


# A model of the hub or a packaged one, debiased so that it can be asked beside the model before.
use rule measure as debiased_model with:
    input:
        TRAINING,
    output:
        directory(PLACE + "/models/{debiased}"),
    params:
        command=lambda w: "debias " + options(**DEBIASED[w.debiased], corpus=config["corpus"], replace=True),
    wildcard_constraints:
        debiased="|".join(map(re.escape, DEBIASED)) or "none",
    message:
        "{wildcards.debiased} trained"
