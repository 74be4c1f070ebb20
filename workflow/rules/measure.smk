# What `redditbias measure` asks of each model, by whatever papers a configuration names.
MEASURE_RUNS = [
    f"{RUNS}/measured/{paper}/{model}.csv"
    for paper, (model, name) in itertools.product(MEASURE, MODELS.items())
    if not ((of := MEASURE[paper].get("record")) and measured({"results": "results"}, paper=paper, model=name, **of))
]


def measuring(w):
    how = {"paper": w.paper, "model": MODELS[w.model], "seed": config["seed"]}
    return "measure " + options(**how, **MEASURE[w.paper].get("options", {}), save=True)


rule measure:
    input:
        RUNS + "/fetched/{model}",
    output:
        RUNS + "/measured/{paper}/{model}.csv",
    params:
        command=measuring,
    threads: THREADS
    message:
        "{wildcards.paper}: {wildcards.model} measured"
    shell:
        "OMP_NUM_THREADS={threads} redditbias {params.command} --out {output:q} > /dev/null"
