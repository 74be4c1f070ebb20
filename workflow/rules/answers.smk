# What models answer to prompts about many groups, before and after tuning for style equality: one notebook a model.
ANSWERS = config.get("answers", {})
JUDGED = {r["model"] for r in records("answer_changes" if ANSWERS.get("tune") else "gen_bias", ANSWERS)}
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
            f"{'-p' if k == 'chat' else '-r'} {k} {shlex.quote(str(ANSWERS[k]))}"
            for k in ("chat", "system", "turn_end", "style", "offence", "frequency")
            if k in ANSWERS
        ),
        axes=" ".join(ANSWERS.get("axes", [])),
        templates=lambda w: " | ".join(ANSWERS.get("templates", [])),
        models=lambda w: f"{RUNS}/answers/models",
        where=lambda w: "figures/holisticbias" if ANSWERS.get("results") == "results" else f"{RUNS}/answers/{w.model}",
    threads: THREADS
    resources:
        figures=1, # every run redraws the same tables and figures: one at a time
    shell:
        "OMP_NUM_THREADS={threads} papermill nbs/papers/holisticbias_answers.ipynb {output:q} -p model {params.model:q}"
        " -r source {params.asked[source]:q} -r axes {params.axes:q} -r templates {params.templates:q}"
        " -p nouns {params.asked[nouns]} -p max_new_tokens {params.asked[max_new_tokens]}"
        " -p tune {params.asked[tune]} -p tune_answers {params.asked[tune_answers]}"
        " -p tune_templates {params.asked[tune_templates]} -p seed {params.asked[seed]} {params.reading}"
        " -p results_dir {params.asked[results]:q} -p figures_dir {params.where:q} -p models_dir {params.models:q}"
