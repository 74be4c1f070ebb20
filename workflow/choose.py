"The hyper-parameters that a search chooses: the script of the rule `chosen`, in which Snakemake puts `snakemake`."
# ruff: noqa: F821

import shutil
from pathlib import Path

import yaml

from redditbias_repro.metrics.choice import choose

p, grid = snakemake.params, snakemake.params.grid
bound, special = grid["search"].get("max_lmp_rise"), bool(grid.get("special_tokens"))
by = grid["search"].get("by", "t")
values = choose(snakemake.input, snakemake.wildcards.method, p.bias_type, bound, grid["results"], p.known, special, by)
folders = {Path(path).parent.name: Path(path).with_name("model") for path in snakemake.input}
kept = next((folder for run, folder in folders.items() if p.runs.get(run) == values), None)
if kept and kept.is_dir():
    shutil.rmtree(p.model, ignore_errors=True)
    Path(p.model).parent.mkdir(parents=True, exist_ok=True)
    kept.rename(p.model)
for folder in folders.values():
    shutil.rmtree(folder, ignore_errors=True)
Path(snakemake.output[0]).write_text(yaml.safe_dump(values))
