# What all rules share: what a run is about, what was measured before, which notebooks of papers are run, what is fetched.
import itertools
import re
import shlex
from functools import cache
from glob import glob
from pathlib import Path

from snakemake.exceptions import WorkflowError

from redditbias_repro.data.pairs import released_papers, split_bias_type
from redditbias_repro.records import matches, read_records
from shared import KEEP_MEMORY, by_slug, given, options, prompts_axes, prompts_corpus, slug

RUNS = f"runs/{config['profile']}"
THREADS = config.get("threads", 2)
SECTIONS = ("debias", "dialogue", "retrieval", "measure", "prompts", "answers", "responses")
GRID, TALK, RETRIEVAL, MEASURE, PROMPTS, ANSWERS, RESPONSES = (config.get(k, {}) for k in SECTIONS)
SEARCH = GRID.get("search", {})
NAMED = [b for section in (GRID, TALK, RETRIEVAL, SEARCH) for b in section.get("bias_types", [])]
NAMED += [d["bias_type"] for d in RESPONSES.get("debiased", [])]
OF = {name: dict(zip(("paper", "bias_type"), split_bias_type(name))) for name in NAMED}  # as records name bias types
TYPES, MODELS = by_slug(NAMED, "bias types"), by_slug(config["models"], "models")
records = cache(lambda folder, metric: read_records(folder, **({"metric": metric} if metric else {})).to_dict("records"))


def measured(section, **wanted):
    "With `resume`: a record that `matches`, maybe of another clone, so that a grid of days goes on; else None"
    kept = records(section["results"], wanted.get("metric")) if config.get("resume") and section else []
    return next((r for r in kept if matches(r, wanted)), None)


def every(section):
    "Lists whose combinations are runs"
    return [section.get(k, []) for k in ("bias_types", "methods", "seeds")]


DRAWN = {}  # runs of papers' notebooks by their paths below RUNS


def draws(run, notebook, says, reads, section=None, folder=None, done=False, **parameters):
    """A run of a paper's notebook. One of a section measures as its settings say, and draws in a folder if its records
    are not the committed ones; done: records have all of it."""
    paper = notebook.split("_")[0]
    if section:
        between = {"axes": " ", "templates": " | "}
        settings = {k: between[k].join(v) if k in between else v for k, v in section.items() if k != "results"}
        figures = f"figures/{paper}" if section["results"] == "results" else folder or f"{RUNS}/{run}"
        parameters = settings | parameters | {"results_dir": section["results"], "figures_dir": figures}
    path, out = f"nbs/papers/{notebook}.ipynb", shlex.quote(f"{RUNS}/{run}.ipynb")
    DRAWN[run] = {"command": f"papermill {path} {out} {given(**parameters)}", "measures": bool(section)}
    DRAWN[run] |= {"reads": [*reads, path, *sorted(glob(f"data/paper/{paper}/*"))], "says": says, "done": done}


wildcard_constraints:
    model="[^/]+",
    bias_type=r"[\w.-]+",
    method="baseline|steering|[A-Z]+(-[a-z0-9]+)?([+][A-Z]+(-[a-z0-9]+)?)?",
    seed="[0-9]+",
    search_run="b[0-9]+-a[0-9]+-l[^/]+-d[^/]+",
    task="dst|crg",


# Corpora and model into the cache, checked. Only a paper's release cannot do without the released files.
rule fetch:
    output:
        touch(RUNS + "/fetched/{model}"),
    params:
        model=lambda w: MODELS[w.model],
        paper=config["corpus"] if config["corpus"] in released_papers() else "",
        kind="--kind masked" if PROMPTS.get("reading") == "span" else "",
    message:
        "corpora and model: {wildcards.model}"
    shell:
        "(redditbias fetch {params.paper} || test -z '{params.paper}')"
        " && redditbias fetch --model {params.model:q} {params.kind}"
