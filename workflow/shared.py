"What the rules share: names in paths and in records, and the words of commands."

import re
import shlex
from collections.abc import Iterable
from ctypes.util import find_library
from pathlib import Path

# Freed memory is kept for the next step instead of being given back to the system: on a CPU the backward pass takes two
# thirds of the time then. jemalloc does so whatever the sizes are; glibc's heap falls to pieces where they differ from
# step to step and are large (logits of 262,144 tokens: 24 GB where 7 are in use), so that it gives back what is larger
# than 256 MB. What nothing asked for in 20 s, some steps, goes back: of a run of 200 steps with all of it kept none was
# left at 24 GB. Both change no number.
KEEP_MEMORY = (
    "LD_PRELOAD=libjemalloc.so.2 MALLOC_CONF=dirty_decay_ms:20000,muzzy_decay_ms:20000,thp:always,oversize_threshold:0"
    if find_library("jemalloc") == "libjemalloc.so.2"
    else "MALLOC_MMAP_THRESHOLD_=268435456 MALLOC_TRIM_THRESHOLD_=17179869184 MALLOC_TOP_PAD_=268435456"
)


def slug(name: str) -> str:
    "A model or bias type as part of a path: `chbias/age` is chbias--age, a file is its name"
    return Path(name).stem if name.endswith(".toml") else re.sub(r"[^\w.-]+", "--", name)


def by_slug(names: Iterable[str], what: str) -> dict[str, str]:
    "Names by their slugs. `ValueError` where two have the same"
    found = {}
    for name in names:
        if found.setdefault(slug(name), name) != name:
            raise ValueError(f"{what} {found[slug(name)]!r} and {name!r} have the same name {slug(name)!r} in paths")
    return found


def given(**parameters) -> str:
    "Parameters of a notebook as papermill reads them: texts as they are, others by their type"
    return " ".join(f"{'-r' if isinstance(v, str) else '-p'} {k} {shlex.quote(str(v))}" for k, v in parameters.items())


def options(**values) -> str:
    "Options of a command: one takes all of a list, a flag (True) nothing"
    words = {k: [] if v is True else v if isinstance(v, list) else [v] for k, v in values.items()}
    return shlex.join(str(x) for k, v in words.items() for x in (f"--{k.replace('_', '-')}", *v))


def prompts_corpus(source: str) -> str:
    "Prompts as records name them"
    from redditbias_repro.data.prompts import prompts_paper

    paper = prompts_paper(source)
    return Path(source).stem if paper == "own" else f"{paper}-{source}"


def prompts_axes(source: str) -> list[str]:
    "Axes of prompts: releases have those that the paper prints, which need no download"
    from redditbias_repro.data.prompts import load_prompt_set, prompts_paper

    return list(load_prompt_set(source if prompts_paper(source) == "own" else "paper").axes)
