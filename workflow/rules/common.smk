# What all rules share: names of folders, models and bias types, and what was measured before.
import itertools
import re
import shlex
from ctypes.util import find_library
from glob import glob
from pathlib import Path

from snakemake.exceptions import WorkflowError

from redditbias_repro.data.pairs import released_papers, split_bias_type

RUNS = f"runs/{config['profile']}"
PAPERS = config.get("papers", ["redditbias"])
PACKAGE = sorted(str(p) for p in Path("redditbias_repro").rglob("*") if p.suffix in (".py", ".toml", ".tsv"))
THREADS = config.get("threads", 2)
# Freed memory is kept for the next step instead of being given back to the system: on a CPU the backward pass takes two
# thirds of the time then. jemalloc does so whatever the sizes are; glibc's heap falls to pieces where they differ from step
# to step and are large (logits of 262,144 tokens: 24 GB where 7 are in use), so that it gives back what is larger than 256 MB.
# What nothing asked for in 20 s, some steps, goes back: of a run of 200 steps with all of it kept none was left at 24 GB.
# Both change no number.
KEEP_MEMORY = (
    "LD_PRELOAD=libjemalloc.so.2 MALLOC_CONF=dirty_decay_ms:20000,muzzy_decay_ms:20000,thp:always,oversize_threshold:0"
    if find_library("jemalloc") == "libjemalloc.so.2"
    else "MALLOC_MMAP_THRESHOLD_=268435456 MALLOC_TRIM_THRESHOLD_=17179869184 MALLOC_TOP_PAD_=268435456"
)
TRAIN = f"{KEEP_MEMORY} OMP_NUM_THREADS={{threads}} papermill"


def slug(name):
    "A model or bias type as part of a path: `chbias/age` is chbias--age, a file is its name"
    return Path(name).stem if str(name).endswith(".toml") else re.sub(r"[^\w.-]+", "--", str(name))


def by_slug(names, what):
    "Names by their slugs; an error where two have the same"
    found = {}
    for name in names:
        if found.setdefault(slug(name), name) != name:
            raise WorkflowError(f"{what} {found[slug(name)]!r} and {name!r} have the same name {slug(name)!r} in paths")
    return found


def section_types():
    "Bias types of all sections, each a known one; an error names those that are"
    sections = [config.get(k, {}) for k in ("debias", "dialogue", "retrieval")]
    names = [b for s in [*sections, sections[0].get("search", {})] for b in s.get("bias_types", [])]
    names += [d["bias_type"] for d in config.get("responses", {}).get("debiased", [])]
    for name in dict.fromkeys(names):
        try:
            split_bias_type(name)
        except (ValueError, OSError) as e:
            raise WorkflowError(f"{name!r}: {e}") from e
    return list(dict.fromkeys(names))


MODELS, TYPES = by_slug(config["models"], "models"), by_slug(section_types(), "bias types")


def records(metric, section):
    "With `resume`, what was measured before, maybe in another clone: a grid of days goes on from its records"
    from redditbias_repro.records import read_records

    found = read_records(section["results"], metric=metric) if config.get("resume") and section else []
    return found.to_dict("records") if len(found) else []


def kept(record, *names):
    "Fields of a record, None where it has none"
    values = [record.get(name) for name in names]
    return tuple(None if v != v else v for v in values)


def prompts_corpus(section):
    "Prompts of a section as records name them"
    from redditbias_repro.data.prompts import prompts_paper

    paper = prompts_paper(section["source"])
    return Path(section["source"]).stem if paper == "own" else f"{paper}-{section['source']}"


wildcard_constraints:
    paper="[a-z]+",
    model="[^/]+",
    bias_type=r"[\w.-]+",
    method="baseline|[A-Z]+(-[a-z0-9]+)?([+][A-Z]+(-[a-z0-9]+)?)?",
    seed="[0-9]+",
    search_run="b[0-9]+-a[0-9]+-l[^/]+-d[^/]+",
    task="dst|crg",
    dump="[^/]+",
    name="[^/]+",
    axis="[^/]+",
