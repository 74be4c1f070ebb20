# Dialog state tracking and response generation, of models before debiasing and after.
TALK = config.get("dialogue", {})
NOTEBOOKS = {"dst": "06_dst", "crg": "07_crg"}
# What a task is read, trained, answered and measured by.
READ, MADE = "data/corpora", ("stats/resampling", "debias/finetune")
USES = {"dst": ["metrics/dst", f"{READ}/multiwoz"]}
USES["crg"] = ["metrics/crg", f"{READ}/multiwoz", f"{READ}/dstc7", "answers/text_metrics", "answers/generation"]

if TALK and TALK["bias_types"] and TALK["methods"] and not GRID:
    raise WorkflowError(
        "dialogue names debiased models: a section debias must say how they are trained (or leave dialogue.methods empty)"
    )


def task_runs():
    "Runs of both tasks that no record has: each model before debiasing, and each that the configuration names"
    before = [("all", "baseline", s) for s in TALK.get("seeds", [])]
    every = [*before, *itertools.product(*(TALK.get(k, []) for k in ("bias_types", "methods", "seeds")))]
    for task in [t for t in NOTEBOOKS if t in TALK]:
        done = {(*done_before(r), r["train_seed"]) for r in records(task, TALK)}
        known = {(model, b, m, s) for model, _, b, m, s in done if b == "all"} | done
        for model, name in MODELS.items():
            for b, m, s in every:
                of = (name, b, m, s) if b == "all" else (name, *split_bias_type(b), m, s)
                if of not in known:
                    yield f"{RUNS}/{task}/{model}/{slug(b)}-{m}-{s}.ipynb"


TASK_RUNS = list(task_runs())


def is_before(w):
    return w.method == "baseline"


def measured_model(w):
    "The folder of a debiased model, which says what it is, or the name of the model that was not debiased"
    return MODELS[w.model] if is_before(w) else f"{RUNS}/models/{w.model}/{w.bias_type}-{w.method}-{w.seed}"


def task_code(w):
    return [f"nbs/{NOTEBOOKS[w.task]}.ipynb", *(f"redditbias_repro/{m}.py" for m in (*MADE, *USES[w.task]))]


# One of the two tasks of a model, debiased or not, after fine-tuning.
rule task:
    input:
        RUNS + "/fetched/{model}",
        task_code,
        lambda w: [] if is_before(w) else f"{RUNS}/debias/{w.model}/{w.bias_type}-{w.method}-{w.seed}.ipynb",
    output:
        RUNS + "/{task}/{model}/{bias_type}-{method}-{seed}.ipynb",
    params:
        notebook=lambda w: NOTEBOOKS[w.task],
        model=measured_model,
        sizes=lambda w: " ".join(f"-p {k} {v}" for k, v in TALK[w.task].items()),
        results=TALK.get("results", ""),
    threads: THREADS
    message:
        "{wildcards.task} of {wildcards.model}: {wildcards.method}, {wildcards.bias_type}, seed {wildcards.seed}"
    shell:
        TRAIN + " nbs/{params.notebook}.ipynb {output:q} -p model {params.model:q} {params.sizes}"
        " -p seed {wildcards.seed} -p out_dir {RUNS}/{wildcards.task} -p results_dir {params.results:q}"


# Only these.
rule dialogue:
    input:
        TASK_RUNS,
