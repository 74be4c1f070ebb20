# What the tests say where the truth is known: models that know nothing, swapped labels, a planted bias.
SIMULATIONS = config.get("simulations", {})
SIMULATION_RUNS = [f"{RUNS}/simulated/{model}/{what}.ipynb" for model, what in itertools.product(MODELS, SIMULATIONS)]


# What was scored is in the cache, and what was trained has a record, so that a run that was stopped goes on.
rule simulate:
    input:
        RUNS + "/fetched/{model}",
    output:
        RUNS + "/simulated/{model}/{what}.ipynb",
    params:
        given=lambda w: given(what=w.what, model=MODELS[w.model], out_dir="results", **SIMULATIONS[w.what]),
    wildcard_constraints:
        what="[a-z-]+",
    threads: 1
    message:
        "{wildcards.what}: what the tests say where the truth is known"
    shell:
        "OMP_NUM_THREADS={threads} papermill nbs/03c_false_alarms.ipynb {output:q} {params.given}"
