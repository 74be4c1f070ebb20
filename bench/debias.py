"""What a debiasing loss adds to a training step, against plain language modelling on the same phrases.

Each method, by the authors' objective and by equation 2, on packed batches (as `debias` trains) and on padded ones,
also against loops in Python.

`make bench-debias` runs it (6 minutes on 2 cores). Contenders take turns on every batch of one process, so that ratios
are of the same moments. Writes records to results/bench and figures/bench/debias.{csv,md}.
"""

import argparse
import os
import statistics
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CONTENDERS = {
    "plain": "plain language modelling",
    "plain-packed": "plain language modelling, packed",
    "LMD-packed": "LMD, packed",
    "ADD-packed": "ADD, packed",
    "HD-packed": "HD, packed",
    "LMD": "LMD",
    "ADD": "ADD",
    "HD": "HD",
    "LMD-equation2": "LMD by equation 2",
    "ADD-equation2": "ADD by equation 2",
    "HD-equation2": "HD by equation 2, subspace at every step",
    "HD-equation2-100": "HD by equation 2, subspace at every 100th step",
    "LMD-equation2-loops": "LMD by equation 2, loops over sentences and pairs",
    "ADD-equation2-loops": "ADD by equation 2, loops over sentences and pairs",
    "HD-equation2-loops": "HD by equation 2, loops over sentences, an SVD a batch",
}


# The losses as they are written down: loops over sentences, occurrences and pairs


def loop_loss(name, head, pairs, outputs, batch, lambda_lm, lambda_d):
    import torch

    hidden, logits = outputs.hidden_states[-1], outputs.logits
    vectors = lambda table: [head.weight[[i for i in rows if i >= 0]].mean(0) for rows in table.tolist()]
    t1, t2 = vectors(pairs.rows1), vectors(pairs.rows2)
    if name == "HD":
        _, s, v = torch.linalg.svd(torch.stack([(a - b) / 2 for a, b in zip(t1, t2)]).detach(), full_matrices=True)
        k = next(k for k in range(1, len(s) + 1) if s[:k].square().sum() >= 0.5 * s.square().sum())
    total, tokens = 0.0, 0
    for row in range(len(logits)):
        labels, marks = batch["labels"][row].tolist(), batch["occurrence"][row].tolist()
        for i in range(1, len(labels)):
            if labels[i] >= 0:
                weight = lambda_lm if marks[i] >= 0 else 1.0
                total = total - weight * torch.log_softmax(logits[row, i - 1], -1)[labels[i]]
                tokens += 1
        for number in sorted({m for m in marks if m >= 0}):
            place = [i for i, m in enumerate(marks) if m == number]
            if name == "LMD":
                if place[0] == 0:
                    continue
                term, state = batch["term"][row, place[0]].item(), hidden[row, place[0] - 1]
                log_y = torch.log_softmax(torch.stack([state @ t for t in [*t1, *t2]]), 0)
                part = [p for p in range(len(t1)) if pairs.takes_part[term, p]]
                loss = sum((log_y[p] - log_y[len(t1) + p]).abs() for p in part) / len(part)
            else:
                a = hidden[row, place].mean(0)
                if name == "ADD":
                    cosine = torch.nn.functional.cosine_similarity
                    loss = sum((cosine(u, a, dim=0) - cosine(w, a, dim=0)).abs() for u, w in zip(t1, t2))
                else:
                    loss = sum((v[j] * (a @ v[j])).norm() for j in range(k))
            total = total + lambda_d * loss
    return total / tokens


def run(device, threads, batch_size, batches, loops, warm=1):
    import torch

    from redditbias_repro.data.pairs import load_phrases
    from redditbias_repro.debias.losses import METHODS, Collator, locate_terms, pack_batch, target_pairs
    from redditbias_repro.debias.training import DebiasLoss
    from redditbias_repro.models.loading import DEFAULT_MODEL, describe_model, load_model
    from redditbias_repro.specs import load_spec

    torch.set_num_threads(threads)
    model, tokenizer = load_model(device=device, dtype="float32")
    about = describe_model(model, DEFAULT_MODEL)  # before it is trained
    model.train()
    spec, texts = load_spec("redditbias/religion1"), list(load_phrases("religion1", "train", "redditbias").text)
    pairs, collate = target_pairs(spec, tokenizer), Collator(tokenizer.pad_token_id)
    head = model.get_output_embeddings()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5, weight_decay=0, fused=True)  # as Transformers trains
    methods = [f"{n}{objective}" for n in ("LMD", "ADD", "HD") for objective in ("", "-equation2")]
    sentences = {m: locate_terms(tokenizer, texts, METHODS[m].find(spec, pairs)) for m in methods}
    losses = {m: DebiasLoss(METHODS[m], pairs, 0.01, 50.0) for m in methods}
    losses["HD-equation2-100"] = DebiasLoss(METHODS["HD-equation2"], pairs, 0.01, 50.0, 100)

    def loss_of(contender, batch, step):
        inputs = {k: v for k, v in batch.items() if k in ("input_ids", "attention_mask", "position_ids")}
        if contender.startswith("plain"):
            return model(**inputs, labels=batch["labels"], use_cache=False).loss
        outputs = model(**inputs, output_hidden_states=True, use_cache=False)
        if contender.endswith("-loops"):
            return loop_loss(contender.split("-")[0], head, pairs, outputs, batch, 0.01, 50.0)
        return losses[contender.removesuffix("-packed")](model, outputs, batch, step=step)

    seconds, worst = {c: [] for c in CONTENDERS}, 0.0
    for step in range(warm + batches):
        found = {}
        for contender in CONTENDERS:
            if contender.endswith("-loops") and step >= warm + loops:  # they take many times as long
                continue
            method = next((m for m in sorted(methods, key=len, reverse=True) if contender.startswith(m)), "HD")
            chosen = sentences[method][step * batch_size : (step + 1) * batch_size]
            if device != "cpu":
                torch.cuda.synchronize()
            start = time.perf_counter()
            batch = {k: v.to(model.device) for k, v in collate(chosen).items()}
            loss = loss_of(contender, pack_batch(batch, model.dtype) if contender.endswith("-packed") else batch, step)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            if step >= warm:
                optimizer.step()
            found[contender] = loss.item()
            if step >= warm:
                seconds[contender].append(time.perf_counter() - start)
            optimizer.zero_grad()
        said = ", ".join(f"{c} {v:.3f}" for c, v in found.items())
        print(f"batch {step + 1} of {warm + batches}: {said}", flush=True)
        if step < warm:  # the weights do not move yet: loops and tensors must say the same
            same = [(f"{n}-equation2-loops", f"{n}-equation2") for n in ("LMD", "ADD", "HD")]
            same += [(f"{n}-packed", n) for n in ("plain", "LMD", "ADD", "HD")]
            worst = max(worst, *(abs(found[a] / found[b] - 1) for a, b in same))
    return about, seconds, worst


def write(about, seconds, worst, device, threads, batch_size):
    from redditbias_repro.records import provenance, write_record

    for contender, times in seconds.items():
        ratios = sorted(t / p for t, p in zip(times, seconds["plain"]))
        values = {
            "milliseconds": round(1000 * statistics.median(times), 1),
            "ratio": round(statistics.median(ratios), 3),
            "ratio_low": round(ratios[len(ratios) // 10], 3),
            "ratio_high": round(ratios[-1 - len(ratios) // 10], 3),
            "largest_difference": worst,
        }
        origin = provenance(about, {"name": "redditbias, religion1, training phrases"}, device_name(device))
        what = {"paper": "bench", "metric": "debias", "bias_type": "religion1", "method": contender}
        what |= {"model": about["name"], "corpus": "redditbias", "split": "train", "n": len(times)}
        how = {"seed": 0, "params": {"device": device, "threads": threads}, "seconds": round(sum(times), 1)}
        write_record({**what, **how, "values": values, "provenance": {**origin, "batch_size": batch_size}})


def device_name(device):
    import torch

    if device != "cpu":
        return torch.cuda.get_device_name()
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").is_file() else []
    name = next((x.split(":", 1)[1].strip() for x in lines if x.startswith("model name")), "cpu")
    return f"{name}, {os.cpu_count()} cores"


def table(folder=None):
    """A row a contender, and the caption."""
    import pandas as pd

    from redditbias_repro.records import read_records

    rows = read_records(folder, paper="bench", metric="debias").set_index("method").loc[list(CONTENDERS)].reset_index()
    rows["step"] = rows.method.map(CONTENDERS)
    about = rows.iloc[0].provenance
    caption = (
        "One training step (forward, loss, backward, AdamW) on the same batches of "
        f"{about['batch_size']} phrases; ratio: median over {rows.n.max()} batches (loops: {rows.n.min()}) of the time "
        "relative to plain language modelling on the same batch, with the 10th and 90th percentile. Batches are padded "
        "unless the row says otherwise; packed: all phrases in one line, as `debias` trains. Losses of loops and of "
        f"packed batches equal those of padded ones to {rows.largest_difference.max():.1e} (relative). "
        f"{about['model']['name']}, float32, {about['device']}, {rows.threads.iloc[0]} threads, "
        f"torch {about['libraries']['torch']}."
    )
    table = pd.DataFrame(rows[["step", "milliseconds", "ratio", "ratio_low", "ratio_high"]])
    ratio = {"{ratio} [{ratio_low}, {ratio_high}]": "ratio [10th, 90th percentile]"}
    table.attrs["shown"] = {"step": "step", "milliseconds": "milliseconds"} | ratio
    return table, caption


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--batches", type=int, default=10, help="batches that are timed")
    parser.add_argument("--loops", type=int, default=2, help="batches that the loops are timed on")
    drawn = "measure nothing: the table from the records that are there"
    parser.add_argument("--draw", action="store_true", help=drawn)
    given = parser.parse_args()
    from redditbias_repro.show import save_table, to_markdown

    if not given.draw:
        measured = run(given.device, given.threads, given.batch_size, given.batches, given.loops)
        write(*measured, given.device, given.threads, given.batch_size)
    rows, caption = table()
    save_table(rows, ROOT / "figures" / "bench" / "debias", caption)
    print(to_markdown(rows, caption))


if __name__ == "__main__":
    main()
