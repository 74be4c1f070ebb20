# Dialog state tracking and response generation, of models before debiasing and after.
NOTEBOOKS = {"dst": "06_dst", "crg": "07_crg"}
# What both tasks, and one alone, are read, trained, answered and measured by.
BOTH_USE = ["stats/resampling", "debias/finetune", "data/corpora/multiwoz"]
USES = {"dst": ["metrics/dst"], "crg": ["metrics/crg", "data/corpora/dstc7", "answers/text_metrics", "answers/generation"]}

if TALK and TALK["bias_types"] and TALK["methods"] and not GRID:
    raise WorkflowError(
        "dialogue names debiased models: a section debias must say how they are trained (or leave dialogue.methods empty)"
    )

OF["all"] = {"bias_type": "all"}  # before debiasing: of whichever paper
TALKING = [*(("all", "baseline", s) for s in TALK.get("seeds", [])), *itertools.product(*every(TALK))]
TASK_RUNS = [
    f"{RUNS}/{task}/{model}/{slug(b)}-{m}-{s}.ipynb"
    for task, (model, name), (b, m, s) in itertools.product(NOTEBOOKS, MODELS.items(), TALKING)
    if task in TALK and not measured(TALK, metric=task, model=name, method=m, train_seed=s, **OF[b])
]


def debiased(w, folder):
    "Where a debiased model or its run is; empty of one that was not debiased"
    return "" if w.method == "baseline" else f"{RUNS}/{folder}/{w.model}/{w.bias_type}-{w.method}-{w.seed}"


def talking(w):
    "Parameters of a task"
    model, places = debiased(w, "models") or MODELS[w.model], {"out_dir": f"{RUNS}/{w.task}", "results_dir": TALK["results"]}
    return given(model=model, **TALK[w.task], seed=int(w.seed), **places)


# One of the two tasks of a model, debiased or not, after fine-tuning.
use rule debias as task with:
    input:
        RUNS + "/fetched/{model}",
        lambda w: [f"redditbias_repro/{m}.py" for m in (*BOTH_USE, *USES[w.task])],
        lambda w: [f"{run}.ipynb" for run in [debiased(w, "debias")] if run],
        notebook=lambda w: f"nbs/{NOTEBOOKS[w.task]}.ipynb",
    output:
        notebook=RUNS + "/{task}/{model}/{bias_type}-{method}-{seed}.ipynb",
    params:
        given=talking,
    message:
        "{wildcards.task} of {wildcards.model}: {wildcards.method}, {wildcards.bias_type}, seed {wildcards.seed}"
