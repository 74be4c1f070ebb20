"""How fast sentences are scored: this project, the authors' loop, CTranslate2, minicons and lm-evaluation-harness.

`make bench` runs it. Each measurement is a process of its own, on the same model file, sentences and threads; rounds
are interleaved, and medians are shown. What was measured with the same code before is kept in runs/bench, so a run that
was stopped goes on; --fresh measures all anew. Writes records to results/bench and
figures/bench/scoring.{csv,md,svg,png}.
"""

import argparse
import copy
import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import textwrap
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
KEPT = ROOT / "runs" / "bench"
PACKAGES = ("minicons", "lm_eval", "ctranslate2", "torch", "transformers")
TITLES = {
    "tree": "redditbias_repro, tree",
    "batches": "redditbias_repro, length-sorted batches",
    "lm_eval": "lm-evaluation-harness, loglikelihood_rolling",
    "minicons": "minicons, IncrementalLMScorer",
    "loop": "one by one (the authors' way)",
    "ctranslate2": "CTranslate2, Generator.score_batch",
}
SIZES = {  # tokens, or sentences
    "tree": [512, 1024],
    "batches": [1024, 2048],
    "ctranslate2": [16, 32, 64],
    "minicons": [16, 64],
    "lm_eval": [16, 64],
}
GPU_SIZES = {
    "tree": [8192, 32768],
    "batches": [16384, 65536],
    "minicons": [64, 256, 1024],
    "lm_eval": [64, 256, 1024],
    "ctranslate2": [64, 256, 1024],
}
PEERS_ROUNDS = {"batches": 2, "ctranslate2": 2, "lm_eval": 1, "minicons": 1, "loop": 1}
PLAN = {  # rounds of each contender on each input
    "religion1": {"tree": 5, "batches": 3, "ctranslate2": 5},
    "redditbias": {"tree": 3, **PEERS_ROUNDS},
    "shortest": {"tree": 5, "ctranslate2": 5},
    "longest": {"tree": 5, "ctranslate2": 5},
    "prompts-100": {"tree": 3, "batches": 3, "ctranslate2": 3},
    "prompts-1000": {"tree": 3, **PEERS_ROUNDS},
    "prompts-10000": {"tree": 3, "batches": 1, "ctranslate2": 1},
    "scattered-10000": {"tree": 1, "ctranslate2": 1},
    "prompts-100000": {"tree": 1},
    "prompts-all": {"tree": 1},
}
PAIRS = {  # inputs that are no prompts: those whose sentences choose the batch size
    "religion1": "religion1",
    "redditbias": "redditbias",
    "shortest": "redditbias",
    "longest": "redditbias",
}
INPUTS = {
    "religion1": "the test set of Religion #1",
    "redditbias": "the five RedditBias test sets",
    "shortest": "the shortest quarter of these sentences",
    "longest": "the longest quarter of these sentences",
    "prompts-100": "100 HolisticBias prompts",
    "prompts-1000": "1,000 HolisticBias prompts",
    "prompts-10000": "10,000 HolisticBias prompts",
    "scattered-10000": "10,000 HolisticBias prompts, drawn singly",
    "prompts-100000": "100,000 HolisticBias prompts",
    "prompts-all": "all prompts of HolisticBias v1.0",
}


# Sentences


def all_prompts():
    """(axis, template, descriptor, prompt) of HolisticBias v1.0: descriptors × nouns × templates."""
    from redditbias_repro.data.corpora.holisticbias import read_prompt_set

    released = read_prompt_set("v1.0")
    phrases = released.noun_phrases()
    for r in phrases[phrases.noun_phrase_type == "descriptor_noun"].itertuples():
        for template in (t["template"] for t in released.templates):
            text = template.format(noun_phrase=r.noun_phrase, plural_noun_phrase=r.plural_noun_phrase)
            yield r.axis, template, r.descriptor, text


def prompts(n, seed=0):
    """n prompts: a template and a descriptor with all nouns at a time.

    They are drawn so that templates and axes have their shares of the whole set."""
    rng = np.random.default_rng(seed)
    families, strata = {}, {}
    for axis, template, word, prompt in all_prompts():
        families.setdefault((axis, template, word), []).append(prompt)
    for family in families:
        strata.setdefault(family[:2], []).append(family)
    rank = {}  # evenly spread in each stratum, so that the first n of all are shares of each
    for members in strata.values():
        drawn = [members[i] for i in rng.permutation(len(members))]
        rank.update(zip(drawn, (np.arange(len(members)) + rng.random()) / len(members)))
    chosen = [prompt for family in sorted(families, key=rank.get) for prompt in families[family]]
    return chosen[:n]


def sentences(name):
    from redditbias_repro.data.pairs import load_pairs
    from redditbias_repro.specs import BIAS_TYPES

    if name in PAIRS:
        pairs = [load_pairs(b, "test", "redditbias") for b in ([name] if name in BIAS_TYPES else BIAS_TYPES)]
        texts = [t for p in pairs for t in (*p.text1, *p.text2)]
        if name not in ("shortest", "longest"):
            return texts
        return sorted(texts, key=len, reverse=name == "longest")[: len(texts) // 4]
    kind, n = name.split("-")
    if n == "all":
        from redditbias_repro.data.prompts import prompts as released

        return released("v1.0").text.tolist()
    if kind == "prompts":
        return prompts(int(n))
    everything = [p[-1] for p in all_prompts()]
    return [everything[i] for i in np.random.default_rng(0).permutation(len(everything))[: int(n)]]


# Contenders: each gives the mean negative log likelihood of each sentence, and what it did


def run_loop(model, tokenizer, texts, size):
    import torch

    means = []
    with torch.no_grad():
        for text in texts:
            ids = torch.tensor([tokenizer.convert_tokens_to_ids(tokenizer.tokenize(text))], device=model.device)
            means.append(model(ids, labels=ids).loss.item())
    return means, {}


def run_ours(path):
    def run(model, tokenizer, texts, size):
        from redditbias_repro.scoring.likelihoods import sequence_scores

        scores = sequence_scores(model, tokenizer, texts, token_budget=size, path=path, progress=False)
        return (scores.nll / scores.n_tokens).tolist(), scores.attrs["stats"]

    return run


def run_minicons(model, tokenizer, texts, size):
    from minicons.scorer import IncrementalLMScorer

    scorer = IncrementalLMScorer(model, str(model.device), tokenizer=tokenizer)
    means = []
    for i in range(0, len(texts), size):
        means += scorer.sequence_score(texts[i : i + size], reduction=lambda x: -x.mean(0).item())
    return means, {}


def run_lm_eval(model, tokenizer, texts, size):
    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM

    scorer = HFLM(pretrained=model, tokenizer=tokenizer, batch_size=size)
    requests = [Instance(request_type="loglikelihood_rolling", doc={}, arguments=(t,), idx=0) for t in texts]
    scorer.loglikelihood_rolling(requests, disable_tqdm=True)
    return None, {}  # it scores the first token too, after an end-of-text token: not the same number


CONVERTED = {}  # while a model is warmed up: conversion is no part of the time


def run_ctranslate2(model, tokenizer, texts, size):
    import ctranslate2
    import torch

    if not CONVERTED:
        with tempfile.TemporaryDirectory() as folder:
            model.save_pretrained(f"{folder}/hf")
            tokenizer.save_pretrained(f"{folder}/hf")
            ctranslate2.converters.TransformersConverter(f"{folder}/hf").convert(f"{folder}/ct2")
            how = dict(device=model.device.type, compute_type=str(model.dtype).removeprefix("torch."))
            CONVERTED["model"] = ctranslate2.Generator(f"{folder}/ct2", intra_threads=torch.get_num_threads(), **how)
    tokens = [tokenizer.convert_ids_to_tokens(i) for i in tokenizer(texts, add_special_tokens=False)["input_ids"]]
    order = sorted(range(len(texts)), key=lambda i: len(tokens[i]))
    found = CONVERTED["model"].score_batch([tokens[i] for i in order], max_batch_size=size)
    means = np.empty(len(texts))
    means[order] = [-np.mean(f.log_probs) for f in found]
    return means.tolist(), {"positions": sum(map(len, tokens))}


RUNS = {
    "ctranslate2": run_ctranslate2,
    "loop": run_loop,
    "tree": run_ours("tree"),
    "batches": run_ours("batches"),
    "minicons": run_minicons,
    "lm_eval": run_lm_eval,
}


# One measurement, in a process of its own


def memory(field):
    """VmRSS or VmHWM of this process, in MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(x.split()[1]) / 1000 for x in lines if x.startswith(field + ":"))


def measure(contender, name, size, out, model, device, dtype, threads, part):
    import torch

    from redditbias_repro.models.loading import load_model
    from redditbias_repro.scoring import layouts, network

    torch.set_num_threads(threads)
    if contender == "peak":
        peaks = {"flops_per_second": matmul_peak(device, dtype), "at_shapes": shapes_peak(model, device, dtype)}
        Path(out).write_text(json.dumps(peaks))
        return
    texts = sentences(name)[:part]
    model, tokenizer = load_model(model, device=device, dtype=dtype)
    embedded, output = model.get_input_embeddings(), model.get_output_embeddings()
    layers = [m for m in model.modules() if m.__class__.__name__ in ("Linear", "Conv1D") and m is not output]
    body, head = sum(m.weight.numel() for m in layers), output.weight.numel()
    run, done = RUNS[contender], {"positions": 0, "head": 0}
    run(model, tokenizer, texts[:8], size)
    network._FOUND.clear()  # trying what the model is, and whether it can share, is part of the work
    layouts._TRIED.clear()
    count_positions = lambda m, a, o: done.update(positions=done["positions"] + a[0].numel())
    count_heads = lambda m, a, o: done.update(head=done["head"] + a[0].numel() // a[0].shape[-1])
    hooks = [embedded.register_forward_hook(count_positions), output.register_forward_hook(count_heads)]
    cuda = torch.device(model.device).type == "cuda"
    if cuda:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated() / 1e6
    else:
        Path("/proc/self/clear_refs").write_text("5")  # the peak is counted from here
        before = memory("VmRSS")
    start = time.perf_counter()
    means, stats = run(model, tokenizer, texts, size)
    if cuda:
        torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    peak = torch.cuda.max_memory_allocated() / 1e6 if cuda else memory("VmHWM")
    for hook in hooks:
        hook.remove()
    tokens = sum(len(s) - 1 for s in tokenizer(texts, add_special_tokens=False)["input_ids"])
    if "positions" in stats:  # a library that has no modules: without its padding
        done = dict.fromkeys(done, stats["positions"])
    flops = 2 * body * done["positions"] + 2 * head * max(done["head"], stats.get("tree_nodes", 0))
    found = {"seconds": seconds, "sentences": len(texts), "tokens": tokens, "positions": done["positions"]}
    found |= {"flops": flops, "megabytes": peak - before, "means": means, "stats": stats}
    Path(out).write_text(json.dumps(found))


def matmul_peak(device, dtype):
    """Floating-point operations a second of the best matrix product.

    torch's own, and oneDNN's with a matrix laid out for it."""
    import torch

    from redditbias_repro.models.loading import device_of
    from redditbias_repro.scoring.products import _packs, pack_linear

    device = device_of(device)
    if dtype == "auto":
        dtype = "float32" if device == "cpu" else "bfloat16"
    kind = getattr(torch, dtype)
    best = 0.0
    with torch.inference_mode():
        for n in (1024, 2048, 4096) if device == "cpu" else (4096, 8192):
            a, b = torch.randn(n, n, device=device, dtype=kind), torch.randn(n, n, device=device, dtype=kind)
            products = [lambda: a @ b]
            if device == "cpu" and kind == torch.float32 and _packs(n):
                packed = pack_linear(b, None, n)
                products.append(lambda: packed(a))
            for product in products:
                for _ in range(8):
                    start = time.perf_counter()
                    product()
                    if device != "cpu":
                        torch.cuda.synchronize()
                    best = max(best, 2 * n**3 / (time.perf_counter() - start))
    return best


def shapes_peak(name, device, dtype):
    """Floating-point operations a second of the fastest product at the shapes of a model's own matrices.

    On a CPU, medians of 1,024 tokens; None elsewhere."""
    import torch

    from redditbias_repro.models.loading import load_model
    from redditbias_repro.scoring.network import WORDS
    from redditbias_repro.scoring.products import PRODUCTS, _packs

    if device != "cpu":
        return None
    model, _ = load_model(name, device=device, dtype=dtype)
    layers = [m for m in model.modules() if m.__class__.__name__ in ("Linear", "Conv1D")]
    head, lines, flops, seconds = model.get_output_embeddings(), 1024, 0, {}
    with torch.inference_mode():
        for m in layers:
            weight = m.weight if m.__class__.__name__ == "Linear" else m.weight.t()
            times = weight.shape[0] / WORDS if m is head else 1
            weight = weight[:WORDS] if m is head else weight
            flops += 2 * lines * weight.numel() * times
            if tuple(weight.shape) not in seconds:
                x, each = torch.randn(1, lines, weight.shape[1], dtype=weight.dtype), []
                for product in (p for n, p in PRODUCTS.items() if n != "packed" or _packs(lines)):
                    made, taken = product(weight, None, lines), []
                    for _ in range(9):
                        start = time.perf_counter()
                        made(x)
                        taken.append(time.perf_counter() - start)
                    each.append(statistics.median(taken))
                seconds[tuple(weight.shape)] = min(each)
            seconds["all"] = seconds.get("all", 0) + times * seconds[tuple(weight.shape)]
    return flops / seconds["all"]


# All measurements


def code():
    """What a measurement depends on."""
    from redditbias_repro.records import code_digest
    from redditbias_repro.scoring.likelihoods import SCORED_BY

    scored_by = code_digest(*SCORED_BY, "models.loading"), *(installed(p) for p in PACKAGES)
    return hashlib.sha256(json.dumps(scored_by).encode()).hexdigest()[:12]


def installed(package):
    try:
        return version(package)
    except PackageNotFoundError:
        return None


class Bench:
    def __init__(self, model, device, dtype, threads, fresh):
        self.how = dict(model=model, device=device, dtype=dtype, threads=threads)
        self.folder = KEPT / f"{code()}-{Path(model).name}-{device}-{dtype}-{threads}"
        if fresh:
            for path in self.folder.glob("*.json"):
                path.unlink()
        self.folder.mkdir(parents=True, exist_ok=True)
        self.sizes = SIZES if device == "cpu" else GPU_SIZES

    def path(self, contender, name, size, number, part=None):
        return self.folder / f"{name}-{contender}-{size}-{number}{'' if part is None else f'-{part}'}.json"

    def once(self, contender, name, size=0, number=0, part=None):
        """One measurement, in a process of its own; from runs/bench where it is there."""
        path = self.path(contender, name, size, number, part)
        if not path.is_file():
            half = path.with_suffix(".half")
            asked = dict(contender=contender, name=name, size=size, out=str(half), part=part, **self.how)
            threads = str(self.how["threads"])
            own = {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads, "TOKENIZERS_PARALLELISM": "true"}
            command = [sys.executable, __file__, "--measure", json.dumps(asked)]
            done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **own})
            if done.returncode:
                sys.exit(f"{contender} on {name} failed:\n{done.stderr[-3000:]}")
            half.rename(path)
        return json.loads(path.read_text())

    def best_size(self, contender, name):
        """The batch size that is fastest on some of these sentences."""
        if contender == "loop":
            return 0
        kind = PAIRS.get(name, "prompts-10000")
        seconds = {size: self.once(contender, kind, size, 0, self.part())["seconds"] for size in self.sizes[contender]}
        return min(seconds, key=seconds.get)

    def run(self, plan):
        tasks = [
            (name == "prompts-all", number, i, name, c)  # by far the longest comes last
            for i, (name, contenders) in enumerate(plan.items())
            for c, n in contenders.items()
            for number in range(n)
        ]
        for _, number, _, name, contender in sorted(tasks, key=lambda t: t[:3]):
            self.once("peak", "matmul", 0, number)
            found = self.once(contender, name, self.best_size(contender, name), number)
            each = 1000 * found["seconds"] / found["sentences"]
            said = f"{name:16s} {contender:9s} round {number + 1}: {found['seconds']:8.1f} s, {each:7.2f} ms a sentence"
            print(said, flush=True)

    def found(self, plan):
        """(input, contender): the rounds that are there."""
        kept = {}
        for name, contenders in plan.items():
            tried_on = PAIRS.get(name, "prompts-10000")
            for contender, n in contenders.items():
                tried = [self.path(contender, tried_on, s, 0, self.part()) for s in self.sizes.get(contender, ())]
                if all(p.is_file() for p in tried):
                    size = self.best_size(contender, name)
                    paths = [self.path(contender, name, size, i) for i in range(n)]
                    rounds = [json.loads(p.read_text()) for p in paths if p.is_file()]
                    if rounds:
                        kept[name, contender] = rounds
        return kept

    def part(self):
        return 400 if self.how["device"] == "cpu" else 4000

    def peak(self, which="flops_per_second"):
        found = [json.loads(p.read_text())[which] for p in self.folder.glob("matmul-peak-*.json")]
        return max((v for v in found if v), default=None)


def differences(rounds, reference):
    """How far scores are from the loop's, relative: of perplexities, and of negative log likelihoods.

    And the sentences whose perplexities differ by over 1e-4."""
    ours, theirs = (np.array(r[0]["means"]) for r in (rounds, reference))
    perplexity = np.abs(np.expm1(ours - theirs))
    return perplexity.max(), np.abs(ours / theirs - 1).max(), np.flatnonzero(perplexity > 1e-4)


def from_float64(model, tokenizer, texts, *means):
    """How far each contender's perplexities of some sentences are at most from the loop's in float64, relative."""
    exact = np.array(run_loop(copy.deepcopy(model).double(), tokenizer, texts, 0)[0])
    return [float(np.abs(np.expm1(np.array(m) - exact)).max()) for m in means]


def write(bench, plan):
    from redditbias_repro.models.loading import describe_model, load_model
    from redditbias_repro.records import provenance, write_record

    model, tokenizer = load_model(bench.how["model"], device=bench.how["device"], dtype=bench.how["dtype"])
    about, peak, found = describe_model(model), bench.peak(), bench.found(plan)
    at_shapes = bench.peak("at_shapes")
    device = device_name(bench.how["device"])
    for (name, contender), rounds in found.items():
        seconds = statistics.median(r["seconds"] for r in rounds)
        first = rounds[0]
        values = {
            "seconds": round(seconds, 2),
            "sentences_per_second": round(first["sentences"] / seconds, 2),
            "tokens_per_second": round(first["tokens"] / seconds, 1),
            "forward_positions": first["positions"],
            "fraction_of_peak": round(first["flops"] / seconds / peak, 3),
            "fraction_of_product": round(first["flops"] / seconds / at_shapes, 3) if at_shapes else None,
            "peak_memory_mb": round(max(r["megabytes"] for r in rounds)),
            "rounds": len(rounds),
            "seconds_low": round(min(r["seconds"] for r in rounds), 2),
            "seconds_high": round(max(r["seconds"] for r in rounds), 2),
        }
        if contender != "loop" and first["means"] and (name, "loop") in found:
            loop = found[name, "loop"]
            perplexity, nll, over = differences(rounds, loop)
            values |= {"largest_difference": float(perplexity), "largest_difference_nll": float(nll)}
            values["over_1e-4"] = len(over)
            if len(over) and bench.how["dtype"] == "float32":  # which of the two is it? float64 tells
                texts = [sentences(name)[i] for i in over]
                means = [[r[0]["means"][i] for i in over] for r in (rounds, loop)]
                mine, theirs = from_float64(model, tokenizer, texts, *means)
                values.update(over_from_float64=mine, over_loop_from_float64=theirs)
        packages = {p: installed(p) for p in PACKAGES}
        corpus, split = ("redditbias", "test") if name in PAIRS else ("holisticbias", "all")
        params = {"device": bench.how["device"], "dtype": about["dtype"], "threads": bench.how["threads"]}
        origin = provenance(about, {"name": INPUTS[name]}, device)
        origin |= {"packages": packages, "batch_size": bench.best_size(contender, name)}
        origin |= {"matmul_gflops": round(peak / 1e9, 1), "scoring": first["stats"]}
        what = {"paper": "bench", "metric": "scoring", "bias_type": name, "method": contender, "model": about["name"]}
        what |= {"corpus": corpus, "split": split, "n": first["sentences"], "values": values, "seed": 0}
        how = {"params": params, "seconds": round(sum(r["seconds"] for r in rounds), 1), "provenance": origin}
        write_record({**what, **how})


def device_name(device):
    import torch

    if device != "cpu" and torch.cuda.is_available():
        return torch.cuda.get_device_name()
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [x.split(":")[1].strip() for x in lines if x.startswith("model name")]
    return f"{names[0]}, {os.cpu_count()} cores" if names else "CPU"


# Tables and the figure, from records


def measured(folder=None):
    """The records as rows, inputs and contenders in order; `times` is how many times as long as the tree each took."""
    import pandas as pd

    from redditbias_repro.records import read_records

    rows = read_records(folder, paper="bench", metric="scoring")
    if not len(rows):
        return rows
    rows["input"] = pd.Categorical(rows.bias_type, list(INPUTS), ordered=True)
    rows["contender"] = pd.Categorical(rows.method, list(TITLES), ordered=True)
    rows["device_name"] = [p["device"] for p in rows.provenance]
    rows = rows.sort_values(["device", "dtype", "model", "input", "contender"], ignore_index=True)
    keys = ["model", "device_name", "dtype", "bias_type"]  # times of different processors are not compared
    tree = rows[rows.method == "tree"].set_index(keys).sentences_per_second.to_dict()
    of_tree = [tree.get(key, np.nan) for key in zip(*(rows[k] for k in keys))]
    rows["times"] = of_tree / rows.sentences_per_second
    return rows


SHOWN = {  # of the full table, in Markdown; the CSV has all columns
    "model": "model",
    "input": "input",
    "scored by": "scored by",
    "sentences": "sentences",
    "{seconds} [{lowest, s}, {highest, s}]": "seconds [lowest, highest]",
    "ms a sentence": "ms per sentence",
    "tokens a second": "tokens per second",
    "times the tree's": "times the tree's",
    "peak memory above the model, MB": "memory above the model, MB",
    "largest difference of nll": "largest difference of nll",
}
GPU_SHOWN = {k: v for k, v in SHOWN.items() if k not in ("model", "tokens a second")}


def full_table(rows):
    import pandas as pd

    columns = {
        "model": rows.model,
        "input": rows.bias_type.map(INPUTS),
        "scored by": rows.method.map(TITLES),
        "sentences": rows.n,
        "seconds": rows.n / rows.sentences_per_second,
        "lowest, s": rows.seconds_low,
        "highest, s": rows.seconds_high,
        "rounds": rows.rounds,
        "ms a sentence": 1000 / rows.sentences_per_second,
        "tokens a second": rows.tokens_per_second,
        "times the tree's": rows.times,
        "forward positions": rows.forward_positions,
        "fraction of the best square product": rows.fraction_of_peak,
        "fraction of the best product at the model's shapes": rows.get("fraction_of_product"),
        "peak memory above the model, MB": rows.peak_memory_mb,
        "largest difference of perplexity": rows.get("largest_difference"),
        "largest difference of nll": rows.get("largest_difference_nll"),
        "device": rows.device_name,
        "dtype": rows.dtype,
    }
    table = pd.DataFrame(columns)
    table.attrs["shown"] = SHOWN if (rows.device == "cpu").all() else {"dtype": "number type"} | GPU_SHOWN
    return table


def caption(rows):
    known = {
        k: v for p in rows.provenance for k, v in p["packages"].items() if v
    }  # of rows that were measured with them
    versions = ", ".join(f"{k} {known[k]}" for k in PACKAGES if k in known)
    peaks = rows.assign(peak=[f"{p['matmul_gflops']:,.0f}" for p in rows.provenance])
    peaks = peaks.groupby(["model", "dtype", "device_name", "threads"], sort=False).peak.unique()
    where = "; ".join(
        f"{model}, {dtype}, {device}, {threads} threads, "
        f"best matrix product in the same run: {' or '.join(sorted(found))} GFLOP/s (peak)"
        for (model, dtype, device, threads), found in peaks.items()
    )
    alone = (
        "all rounds ran in one process"
        if "process" in rows.provenance.iloc[0]
        else "each round is a process of its own"
    )
    return (
        f"{where}. Each time is the median of the rounds that the CSV counts; {alone}. "
        "Times include tokenization and the check at first use, but not loading. Each library uses its best batch "
        "size. HolisticBias prompts: all nouns of a template and descriptor together, with templates and axes in the "
        'proportions of the whole set; "drawn singly": single prompts at random, which share less. Differences are '
        "relative to scoring one by one. lm-evaluation-harness also scores the first token. Versions: "
        f"{versions}."
    )


def on_cpu(rows):
    return rows[rows.device == "cpu"]


def on_gpu(rows):
    """Those of the fewest numbers last: float32, then bfloat16."""
    return rows[rows.device != "cpu"].sort_values(["dtype", "input", "contender"], ascending=[False, True, True])


def first_group(rows):
    """The rows of one model, processor and number type, those with the most: they can be compared.

    The short table and the figure show them."""
    rows = on_cpu(rows)
    keys = ["model", "device_name", "dtype"]
    return rows[(rows[keys] == list(rows[keys].value_counts().index[0])).all(axis=1)]


CONTENDERS = {
    "batches": "our batches",
    "ctranslate2": "CTranslate2",
    "lm_eval": "lm-eval",
    "minicons": "minicons",
    "loop": "one by one",
}
LIBRARIES = [c for c in CONTENDERS if c != "batches"]


def short_table(rows, contenders=CONTENDERS):
    """How many times as long as the tree each contender takes."""
    wide = rows.pivot(index="input", columns="method", values="times")
    wide = (
        wide[[c for c in contenders if c in wide]]
        .map("{:.1f} ×".format, na_rep="")
        .replace("nan ×", "")
        .rename(columns=CONTENDERS)
    )
    tree = rows[rows.method == "tree"].set_index("input")
    each = (1000 / tree.sentences_per_second).map("{:#.3g}".format).str.rstrip(".")
    wide.insert(0, "tree, ms per sentence", each)
    wide.insert(0, "sentences", [INPUTS[i] for i in wide.index])
    return wide.reset_index(drop=True)


def gpu_report(folder=None):
    """The part of docs/scoring.md on GPUs; empty without a measurement."""
    import pandas as pd

    from redditbias_repro.show import to_markdown

    rows = on_gpu(measured(folder))
    if not len(rows):
        return ""
    parts = {dtype: short_table(of) for dtype, of in rows.groupby("dtype", sort=False)}
    table = pd.concat([t.assign(**{"number type": dtype}) for dtype, t in parts.items()])
    table = table[["sentences", "number type", *(c for c in table if c not in ("sentences", "number type"))]]
    tree = rows[rows.method == "tree"].groupby("dtype")
    exact, coarse = tree.largest_difference_nll.max(), tree.largest_difference.max()
    said = (
        "Times of others are multiples of the tree's; blank: not measured. Model: "
        f"{rows.model.iloc[0]} on one {rows.device_name.iloc[0]}, up to {rows['rounds'].max()} rounds in one process. "
        "Compared with scoring one by one in float32, the tree's negative log likelihoods differ by at most "
        f"{exact['float32']:.1e} (relative)."
        + (f" In bfloat16, perplexities differ by up to {coarse['bfloat16']:.1%}." if "bfloat16" in coarse else "")
    )
    return to_markdown(table.fillna(""), said)


def report(folder=None):
    """The part of docs/scoring.md between the marks."""
    from redditbias_repro.show import to_markdown

    rows = first_group(measured(folder))
    ours = rows[rows.method == "tree"]
    (model, dtype, threads), *_ = rows[["model", "dtype", "threads"]].itertuples(index=False)
    said = (
        "Times of other libraries are multiples of the tree's; blank: not measured. Drawn singly: random prompts, "
        f"which share fewer beginnings. Model: {model}, {dtype}, {threads} threads. Tokenization is included, loading "
        "is not; each library uses its best batch size. Compared with scoring one by one, the tree's negative log "
        f"likelihoods differ by at most {ours.largest_difference_nll.max():.1e} and its perplexities by at most "
        f"{ours.largest_difference.max():.2e} (relative). It needs at most {ours.peak_memory_mb.max():,.0f} MB "
        "on top of the loaded model."
    )
    return to_markdown(short_table(rows, LIBRARIES), said)


def details(folder=None):
    """The part of docs/appendix/scoring.md between the marks."""
    from redditbias_repro.show import to_markdown

    rows = first_group(measured(folder))
    ours = rows[rows.method == "tree"]
    over = ours[ours["over_1e-4"] > 0]
    n, exact = over["over_1e-4"].sum(), ""
    compared = ours.n[ours.largest_difference.notna()].sum()
    if len(over):
        exact = (
            f"; {'on that sentence' if n == 1 else 'on those'} the tree is within "
            f"{over.over_from_float64.max():.1e} of the loop in float64, and the loop in {rows.dtype.iloc[0]} within "
            f"{over.over_loop_from_float64.max():.1e}"
        )
    parts = [
        to_markdown(short_table(rows), "Times as multiples of the tree's. Blank: not measured.").strip(),
        "**Exactness**, relative to scoring one by one: negative log likelihoods differ by at most "
        f"{ours.largest_difference_nll.max():.1e}, perplexities by at most {ours.largest_difference.max():.2e}. "
        f"Of {compared:,} perplexities {n:.0f} {'differs' if n == 1 else 'differ'} by more than 1e-4{exact}.",
        f"**Memory**: at most {ours.peak_memory_mb.max():,.0f} MB on top of the loaded model.",
    ]
    large = ours[ours.n >= 10_000]
    if large.get("fraction_of_product", large.n * np.nan).notna().any():
        low, high = large.fraction_of_product.min(), large.fraction_of_product.max()
        parts.append(
            f"**Throughput**: on 10,000 sentences and more the tree reaches {low:.0%} to {high:.0%} of the speed of "
            f"the fastest matrix product at the model's own shapes, and {large.fraction_of_peak.min():.0%} to "
            f"{large.fraction_of_peak.max():.0%} of that of a square one."
        )
    return "\n\n".join([*parts, f"**Setup**: {caption(rows)}"]) + "\n"


PEERS = (
    "ctranslate2",
    "minicons",
    "lm_eval",
    "loop",
    "batches",
)  # the others are compared with the first of these that was measured
PLACES = {  # on the figure
    "religion1": "Religion #1",
    "redditbias": "RedditBias test sets",
    "shortest": "their shortest quarter",
    "longest": "their longest quarter",
    "scattered-10000": "10,000 prompts, drawn singly",
    **{f"prompts-{n}": f"{n:,} HolisticBias prompts" for n in (100, 1000, 10000, 100000)},
    "prompts-all": "all of v1.0",
}


def faster(rows):
    """The peer, and for each input that it was measured on how many times as fast as it each contender is."""
    wide = rows.pivot(index="bias_type", columns="method", values="sentences_per_second")
    wide = wide.reindex(index=[i for i in INPUTS if i in wide.index])
    peer = next(p for p in PEERS if p in wide)
    return peer, wide.div(wide[peer], axis=0).dropna(subset=[peer]).dropna(axis=1, how="all")


def speed_title(peer, ratios):
    """What the figure finds: the tree's speed against the peer."""
    low, high = (f"{v:.1f}" for v in (ratios.tree / ratios[peer]).agg(["min", "max"]))
    name = TITLES[peer].partition(",")[0]
    return f"The tree is {low if low == high else f'{low} to {high}'} times as fast as {name}"


def draw_speed(rows):
    """A dot a contender and input: how many times as fast as the peer. What has no peer is said below."""
    import matplotlib.pyplot as plt
    import seaborn as sns
    from matplotlib.ticker import FuncFormatter, NullFormatter

    peer, ratios = faster(rows)
    palette = dict(zip(TITLES, sns.color_palette("colorblind")))
    with sns.axes_style("whitegrid"):
        figure, ax = plt.subplots(figsize=(8.5, 0.55 * len(ratios) + 1.6))
    for (contender, title), marker in zip(TITLES.items(), "osD^vP"):
        if contender in ratios:
            look = {"markersize": 8, "markeredgecolor": "black", "markeredgewidth": 0.6, "clip_on": False}
            ax.plot(ratios[contender], range(len(ratios)), marker, color=palette[contender], label=title, **look)
    for place, best in enumerate(ratios.max(axis=1)):
        ax.annotate(f"{best:.1f} ×", (best, place), xytext=(9, 0), textcoords="offset points", va="center", fontsize=9)
    ax.axvline(1, color="black", linewidth=1)
    ax.set_xscale("log", base=2)
    ax.set_xlim(ratios.min().min() / 1.2, ratios.max().max() * 1.4)
    ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g} ×" if x >= 1 else f"1/{1 / x:g} ×"))
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.set(yticks=range(len(ratios)), yticklabels=[PLACES[i] for i in ratios.index], ylim=(len(ratios) - 0.5, -0.5))
    alone = rows[~rows.bias_type.isin(ratios.index) & ~rows.bias_type.duplicated(keep=False)]
    devices = set(rows[rows.bias_type.isin(ratios.index)].device_name)
    other = lambda r: "" if r.device_name in devices else f", on another processor, {r.device_name.split(',')[0]}"
    alone = [
        f"{PLACES[r.bias_type]} ({1000 / r.sentences_per_second:.1f} ms each{other(r)})" for r in alone.itertuples()
    ]
    said = " and ".join([*([", ".join(alone[:-1])] if alone[:-1] else []), *alone[-1:]])
    note = "\n" + textwrap.fill(f"Only the tree was measured on {said}", 110) if alone else ""
    ax.set_xlabel(f"speed relative to {TITLES[peer].partition(',')[0]} on the same sentences{note}", fontsize=9)
    about = f"{rows.model.iloc[0]}, {rows.dtype.iloc[0]}"
    figure.suptitle(f"{speed_title(peer, ratios)}\n{about}", fontsize=10)
    figure.legend(loc="upper center", bbox_to_anchor=(0.5, 0.0), ncols=2, fontsize=9, frameon=False)
    figure.tight_layout()
    plt.close(figure)
    return figure


def draw():
    import matplotlib

    matplotlib.use("Agg")
    from redditbias_repro.records import project_path
    from redditbias_repro.show import save_figure, save_table

    rows = measured()
    folder = project_path("figures", "bench")
    for name, own in (("scoring", on_cpu(rows)), ("scoring-gpu", on_gpu(rows))):
        if len(own):
            save_table(full_table(own), folder / name, caption(own))
    save_figure(draw_speed(first_group(rows)), folder / "scoring")


PARTS = {  # of docs/, by what marks them
    ("scoring.md", "bench"): report,
    ("scoring.md", "gpu"): gpu_report,
    ("appendix/scoring.md", "bench"): details,
}


def write_readme():
    from redditbias_repro.records import write_atomic

    for (path, name), made in PARTS.items():
        path, begin, end = (
            ROOT / "docs" / path,
            f"<!-- {name}: written by `make bench BENCH=--readme` -->",
            f"<!-- /{name} -->",
        )
        before, rest = path.read_text(encoding="utf-8").split(begin)
        write_atomic(path, f"{before}{begin}\n\n{made()}\n{end}{rest.split(end)[1]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", default="smollm2-135m-instruct", help="as of load_model")
    parser.add_argument("--device", default="cpu", help="cpu, cuda or auto")
    parser.add_argument("--dtype", default="float32", help="float32, bfloat16, float16")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--inputs", nargs="+", choices=PLAN, default=list(PLAN))
    parser.add_argument("--contenders", nargs="+", choices=TITLES, default=list(TITLES))
    parser.add_argument("--fresh", action="store_true", help="measure all anew")
    drawn = "measure nothing: table and figure from the records that are there"
    parser.add_argument("--draw", action="store_true", help=drawn)
    parser.add_argument(
        "--readme", action="store_true", help="also put the tables into docs/scoring.md and its appendix"
    )
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure:
        return measure(**json.loads(given.measure))
    if not given.draw:
        plan = {name: {c: n for c, n in PLAN[name].items() if c in given.contenders} for name in given.inputs}
        from redditbias_repro.models.loading import device_of

        bench = Bench(given.model, device_of(given.device), given.dtype, given.threads, given.fresh)
        bench.run(plan)
        write(bench, plan)
    draw()
    if given.readme:
        write_readme()
    print(report())


if __name__ == "__main__":
    main()
