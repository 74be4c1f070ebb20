# What models answer to prompts about many groups, before and after tuning for style equality: one notebook a model.
def answered(model, metric, **fields):
    "A record of the same prompts, asked in the same way and judged by the same classifiers"
    from redditbias_repro.answers.generation import decoding_of, name_decoding

    beams, longest = ANSWERS.get("num_beams", 1), ANSWERS["max_new_tokens"]
    way = {k: ANSWERS.get(k) for k in ("seed", "chat", "system", "turn_end")}
    way |= {"corpus": prompts_corpus(ANSWERS["source"]), "nouns": ANSWERS["nouns"] or None}
    way |= {"provenance.asked.axes": set(ANSWERS.get("axes", [])), "provenance.asked.personas": None}
    way["decoding"] = name_decoding(decoding_of("beam3", num_beams=beams, max_new_tokens=longest))
    for kind, usual in (("style", "goemotions"), ("offence", "davidson")):
        name = ANSWERS.get(kind, usual)
        way[f"provenance.classifiers.{kind}.name"] = lambda judge, of=(name, Path(name).stem): judge in of
    return measured(ANSWERS, metric=metric, model=model, **way, **fields)


def judged(model):
    "Whether records have all of a model. With personas none has: they keep a hash of what was drawn"
    some = set(ANSWERS.get("templates", []))
    before = answered(model, "gen_bias", method="baseline", **{"provenance.asked.templates": some})
    if not before or ANSWERS.get("personas"):
        return False
    n = before["n"]
    learnt = lambda t: t and t["answers"] + t["held_out_answers"] == min(ANSWERS["tune_answers"] or n, n)
    tuned = {"against": None, "train_seed": ANSWERS["seed"], "provenance.training": learnt}
    whose = ({"templates": ANSWERS["tune_templates"]}, {"n": n})  # all prompts are also those of so many templates
    methods = ("style-equality", "style-equality-untagged") if ANSWERS["tune"] else ()
    return all(any(answered(model, "answer_changes", method=m, **tuned, **of) for of in whose) for m in methods)


for model, name in MODELS.items() if ANSWERS else ():
    run, says, reads = f"answers/{model}", f"holisticbias: answers of {model}, judged", [f"{RUNS}/fetched/{model}"]
    own = {"model": name, "models_dir": f"{RUNS}/answers/models"}
    draws(run, "holisticbias_answers", says, reads, ANSWERS, done=judged(name), **own)
