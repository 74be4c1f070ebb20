# Likelihood bias on prompts about many groups: axes side by side, then tables and figures of all.
ASKED = config.get("prompts", {})


def asked_axes():
    "Axes to score, by their names in paths; those of the configuration, else all of the source"
    from redditbias_repro.prompts import load_prompt_set

    return by_slug(ASKED["axes"] if ASKED.get("axes") else load_prompt_set(ASKED["source"]).axes, "axes")


PROMPT_AXES = asked_axes() if ASKED else {}
SCORED = {(r["model"], r["bias_type"]) for r in records("likelihood_bias", ASKED)}
PROMPT_RUNS = [
    f"{RUNS}/prompts/{model}.ipynb"
    for model, name in MODELS.items()
    if ASKED and not {(name, axis) for axis in PROMPT_AXES.values()} <= SCORED
]


# The scores of one axis, into the cache.
rule prompt_axis:
    input:
        RUNS + "/fetched/{model}",
    output:
        RUNS + "/prompts/{model}/{axis}.json",
    params:
        model=lambda w: MODELS[w.model],
        axis=lambda w: PROMPT_AXES[w.axis],
        asked=ASKED,
        templates=lambda w: " ".join(shlex.quote(t) for t in ASKED.get("templates", [])),
    threads: THREADS
    shell:
        "OMP_NUM_THREADS={threads} redditbias measure --paper holisticbias --prompts {params.asked[source]:q}"
        " --model {params.model:q} --axes {params.axis:q} --reading {params.asked[reading]} --seed {config[seed]}"
        " $([ -z {params.templates:q} ] || echo --templates) {params.templates} --out {output:q} > /dev/null"


# Tables and figures of all axes, which finds their scores in the cache.
rule prompts:
    input:
        RUNS + "/fetched/{model}",
        "nbs/papers/holisticbias.ipynb",
        sorted(glob("data/paper/holisticbias/*")),
        lambda w: [f"{RUNS}/prompts/{w.model}/{axis}.json" for axis in PROMPT_AXES],
    output:
        RUNS + "/prompts/{model}.ipynb",
    params:
        model=lambda w: MODELS[w.model],
        asked=ASKED,
        axes=" ".join(PROMPT_AXES.values()) if ASKED.get("axes") else "",
        templates=lambda w: " | ".join(ASKED.get("templates", [])),
        where=lambda w: "figures/holisticbias" if ASKED.get("results") == "results" else f"{RUNS}/prompts/{w.model}",
    threads: THREADS
    resources:
        figures=1, # every run redraws the same tables and figures: one at a time
    shell:
        "OMP_NUM_THREADS={threads} papermill nbs/papers/holisticbias.ipynb {output:q} -p model {params.model:q}"
        " -r source {params.asked[source]:q} -r axes {params.axes:q} -r templates {params.templates:q}"
        " -p reading {params.asked[reading]} -p seed {config[seed]}"
        " -p results_dir {params.asked[results]:q} -p figures_dir {params.where:q}"
