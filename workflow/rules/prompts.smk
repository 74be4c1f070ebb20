# Likelihood bias on prompts about many groups: axes side by side, then tables and figures of all.
AXES = by_slug(PROMPTS.get("axes") or prompts_axes(PROMPTS["source"]), "axes") if PROMPTS else {}


def scored(model):
    "Whether records have all axes, of the same prompts, read in the same way"
    some = set(PROMPTS.get("templates", []))
    way = {"method": "baseline", "corpus": prompts_corpus(PROMPTS["source"]), "reading": PROMPTS["reading"]}
    way |= dict.fromkeys(("personas", "context", "end", "prompt", "n_templates"))
    way |= {"n_templates": len(some), "templates": some} if some else {}
    if PROMPTS.get("personas") and config.get("resume"):
        from redditbias_repro.data.prompts import read_personas
        from redditbias_repro.records import digest

        way |= {"personas": digest(read_personas(PROMPTS["personas"])), "seed": config["seed"]}
    return all(measured(PROMPTS, metric="likelihood_bias", model=model, bias_type=a, **way) for a in AXES.values())


def scoring(w):
    asked = {k: PROMPTS[k] for k in ("reading", "templates", "personas") if k in PROMPTS}
    of = {"paper": "holisticbias", "prompts": PROMPTS["source"], "model": MODELS[w.model], "axes": AXES[w.axis]}
    return "measure " + options(**of, **asked, seed=config["seed"])


# The scores of one axis, into the cache.
use rule measure as prompt_axis with:
    output:
        RUNS + "/prompts/{model}/{axis}.json",
    params:
        command=scoring,
    message:
        "holisticbias: prompts on {wildcards.axis} scored by {wildcards.model}"


# Tables and figures of all axes, from their scores in the cache; those of spans are not kept there.
for model, name in MODELS.items() if PROMPTS else ():
    axes = [f"{RUNS}/prompts/{model}/{axis}.json" for axis in AXES if PROMPTS["reading"] != "span"]
    run, says = f"prompts/{model}", f"holisticbias: tables and figures of {model}'s prompts"
    own = {"model": name, "seed": config["seed"]}
    draws(run, "holisticbias", says, [f"{RUNS}/fetched/{model}", *axes], PROMPTS, done=scored(name), **own)
