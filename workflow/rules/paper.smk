# Tables and figures of papers.
PAPERS = config.get("papers", ["redditbias"])
PACKAGE = sorted(str(p) for p in Path("redditbias_repro").rglob("*") if p.suffix in (".py", ".toml", ".tsv"))
# Whether the grid's records are those that tables, figures and README are made from; else the notebook decides by the model.
COMMITTED = GRID.get("results") == "results"

# For one model, debiased or not.
for paper, (model, name) in itertools.product(PAPERS, MODELS.items()):
    reads = [f"{RUNS}/fetched/{model}", *sorted(glob("data/published/*")), *PACKAGE, *SIMULATION_RUNS]
    reads += (GRID_RUNS if COMMITTED else []) + (TASK_RUNS if TALK.get("results") == "results" else [])
    asked = {"model": name, "corpus": config["corpus"], "seed": config["seed"]}
    asked |= {"results_dir": "results", "figures_dir": f"figures/{paper}"} if COMMITTED else {}
    asked |= {"special_tokens": True} if GRID.get("special_tokens") else {}
    draws(f"{paper}/{model}", paper, f"{paper}: {model} measured, tables and figures", reads, **asked)

# From committed records and its released files, without a model.
for paper in config.get("tables", []):
    kept = sorted(glob(f"results/{paper}/**/*.json", recursive=True))
    draws(f"tables-{paper}", paper, f"{paper}: tables and figures from records", [*kept, *PACKAGE], model="")

# The statements of all papers, checked again by committed records, after whatever makes records.
if config.get("claims"):
    made = [f"{RUNS}/{paper}/{model}.ipynb" for paper, model in itertools.product(PAPERS, MODELS)]
    kept = [*glob("data/paper/*/*"), *glob("results/**/*.json", recursive=True)]
    draws("claims", "claims", "statements of all papers checked by records", [*made, *kept, *PACKAGE])


# A notebook of a paper, which draws tables and figures that others draw as well.
rule draw:
    input:
        lambda w: DRAWN[w.drawn]["reads"],
    output:
        RUNS + "/{drawn}.ipynb",
    params:
        command=lambda w: DRAWN[w.drawn]["command"],
        limit=lambda w, threads: f"OMP_NUM_THREADS={threads} " if DRAWN[w.drawn]["measures"] else "",
        says=lambda w: DRAWN[w.drawn]["says"],
    wildcard_constraints:
        drawn="|".join(map(re.escape, DRAWN)) or "none",
    threads: lambda w: THREADS if DRAWN[w.drawn]["measures"] else 1
    resources:
        figures=1, # one at a time
    message:
        "{params.says}"
    shell:
        "{params.limit}{params.command}"
