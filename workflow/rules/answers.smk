# What models answer to prompts about many groups, before and after tuning for style equality: one notebook a model.
ANSWERS = config.get("answers", {})


def was_asked(r):
    "Whether a record is of the same prompts, asked in the same way and judged by the same classifiers"
    from redditbias_repro.answers.generation import decoding_of, name_decoding

    beams, longest = ANSWERS.get("num_beams", 1), ANSWERS["max_new_tokens"]
    way = [prompts_corpus(ANSWERS), name_decoding(decoding_of("beam3", num_beams=beams, max_new_tokens=longest))]
    way += [ANSWERS["nouns"] or None, ANSWERS["seed"], *(ANSWERS.get(k) for k in ("chat", "system", "turn_end"))]
    asked, by = (r["provenance"].get(k, {}) for k in ("asked", "classifiers"))
    judges = [by.get(k, {}).get("name") for k in ("style", "offence")]
    named = [ANSWERS.get(k, default) for k, default in (("style", "goemotions"), ("offence", "davidson"))]
    return (
        kept(r, "corpus", "decoding", "nouns", "seed", "chat", "system", "turn_end") == tuple(way)
        and set(asked.get("axes") or []) == set(ANSWERS.get("axes", []))
        and asked.get("personas") is None
        and all(judge in (name, Path(name).stem) for judge, name in zip(judges, named))
    )


def judged_before():
    "Models whose records are all there. With personas none: records keep a hash of what was drawn"
    if ANSWERS.get("personas"):
        return
    before = {}
    for r in records("gen_bias", ANSWERS):
        some = r["provenance"].get("asked", {}).get("templates") or []
        if r["method"] == "baseline" and was_asked(r) and set(some) == set(ANSWERS.get("templates", [])):
            before[r["model"]] = r["n"]
    tuned = set()
    for r in records("answer_changes", ANSWERS) if ANSWERS.get("tune") else ():
        n, (against, seed, count) = before.get(r["model"]), kept(r, "against", "train_seed", "templates")
        training = r["provenance"].get("training", {})
        learnt = training.get("answers", 0) + training.get("held_out_answers", 0)
        if n and against is None and seed == ANSWERS["seed"] and was_asked(r):
            if (count == ANSWERS["tune_templates"] or r["n"] == n) and learnt == min(ANSWERS["tune_answers"] or n, n):
                tuned.add((r["model"], r["method"]))
    methods = ("style-equality", "style-equality-untagged") if ANSWERS.get("tune") else ()
    yield from (model for model in before if all((model, m) in tuned for m in methods))


JUDGED = set(judged_before())
ANSWER_RUNS = [f"{RUNS}/answers/{model}.ipynb" for model, name in MODELS.items() if ANSWERS and name not in JUDGED]


rule answers:
    input:
        RUNS + "/fetched/{model}",
        "nbs/papers/holisticbias_answers.ipynb",
        sorted(glob("data/paper/holisticbias/*")),
    output:
        RUNS + "/answers/{model}.ipynb",
    params:
        model=lambda w: MODELS[w.model],
        asked=ANSWERS,
        reading=" ".join(
            f"{'-p' if k in ('chat', 'num_beams') else '-r'} {k} {shlex.quote(str(ANSWERS[k]))}"
            for k in ("chat", "num_beams", "personas", "system", "turn_end", "style", "offence", "frequency")
            if k in ANSWERS
        ),
        axes=" ".join(ANSWERS.get("axes", [])),
        templates=lambda w: " | ".join(ANSWERS.get("templates", [])),
        models=lambda w: f"{RUNS}/answers/models",
        where=lambda w: "figures/holisticbias" if ANSWERS.get("results") == "results" else f"{RUNS}/answers/{w.model}",
    threads: THREADS
    resources:
        figures=1, # every run redraws the same tables and figures: one at a time
    message:
        "holisticbias: answers of {wildcards.model}, judged"
    shell:
        "OMP_NUM_THREADS={threads} papermill nbs/papers/holisticbias_answers.ipynb {output:q} -p model {params.model:q}"
        " -r source {params.asked[source]:q} -r axes {params.axes:q} -r templates {params.templates:q}"
        " -p nouns {params.asked[nouns]} -p max_new_tokens {params.asked[max_new_tokens]}"
        " -p tune {params.asked[tune]} -p tune_answers {params.asked[tune_answers]}"
        " -p tune_templates {params.asked[tune_templates]} -p seed {params.asked[seed]} {params.reading}"
        " -p results_dir {params.asked[results]:q} -p figures_dir {params.where:q} -p models_dir {params.models:q}"
