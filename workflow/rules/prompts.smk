# Likelihood bias on prompts about many groups: axes side by side, then tables and figures of all.
ASKED = config.get("prompts", {})


def asked_axes():
    "Axes to score, by their names in paths; those of the configuration, else all of the source"
    from redditbias_repro.data.prompts import load_prompt_set, prompts_paper

    # The releases have the axes that the paper prints, which need no download.
    source = ASKED["source"] if prompts_paper(ASKED["source"]) == "own" else "paper"
    return by_slug(ASKED.get("axes") or load_prompt_set(source).axes, "axes")


PROMPT_AXES = asked_axes() if ASKED else {}


def scored_before():
    "Model and axis of what was scored before: the same prompts, read in the same way"
    some, personas, found = ASKED.get("templates"), None, records("likelihood_bias", ASKED)
    if found and ASKED.get("personas"):
        from redditbias_repro.data.prompts import read_personas
        from redditbias_repro.records import digest

        personas = digest(read_personas(ASKED["personas"]))
    for r in found:
        way = ("baseline", prompts_corpus(ASKED), ASKED["reading"], personas, None, None, None)
        same = kept(r, "method", "corpus", "reading", "personas", "context", "end", "prompt") == way
        same = same and (not personas or r["seed"] == config["seed"])
        count, templates = kept(r, "n_templates", "templates")
        if same and (count is None if some is None else count and set(templates) == set(some)):
            yield r["model"], r["bias_type"]


SCORED = set(scored_before())
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
        personas=f"--personas {shlex.quote(ASKED['personas'])}" if ASKED.get("personas") else "",
    threads: THREADS
    message:
        "holisticbias: prompts on {wildcards.axis} scored by {wildcards.model}"
    shell:
        "OMP_NUM_THREADS={threads} redditbias measure --paper holisticbias --prompts {params.asked[source]:q}"
        " --model {params.model:q} --axes {params.axis:q} --reading {params.asked[reading]} --seed {config[seed]}"
        " $([ -z {params.templates:q} ] || echo --templates) {params.templates} {params.personas} --out {output:q} > /dev/null"


# Tables and figures of all axes, which finds their scores in the cache.
rule prompts:
    input:
        RUNS + "/fetched/{model}",
        "nbs/papers/holisticbias.ipynb",
        sorted(glob("data/paper/holisticbias/*")),
        # the scores of spans are not kept in the cache
        lambda w: [f"{RUNS}/prompts/{w.model}/{a}.json" for a in PROMPT_AXES if ASKED["reading"] != "span"],
    output:
        RUNS + "/prompts/{model}.ipynb",
    params:
        model=lambda w: MODELS[w.model],
        asked=ASKED,
        axes=" ".join(PROMPT_AXES.values()) if ASKED.get("axes") else "",
        templates=lambda w: " | ".join(ASKED.get("templates", [])),
        personas=f"-r personas {shlex.quote(ASKED['personas'])}" if ASKED.get("personas") else "",
        where=lambda w: "figures/holisticbias" if ASKED.get("results") == "results" else f"{RUNS}/prompts/{w.model}",
    threads: THREADS
    resources:
        figures=1, # every run redraws the same tables and figures: one at a time
    message:
        "holisticbias: tables and figures of {wildcards.model}'s prompts"
    shell:
        "OMP_NUM_THREADS={threads} papermill nbs/papers/holisticbias.ipynb {output:q} -p model {params.model:q}"
        " -r source {params.asked[source]:q} -r axes {params.axes:q} -r templates {params.templates:q}"
        " -p reading {params.asked[reading]} {params.personas} -p seed {config[seed]}"
        " -p results_dir {params.asked[results]:q} -p figures_dir {params.where:q}"
