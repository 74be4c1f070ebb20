"""How fast the best of many candidates is found for each context: ours and faiss-cpu's IndexFlatIP.

`make bench-candidates` runs it (six minutes). Made vectors, each contender a process of its own on one core, equal in
each round; all must name the same candidates. Seconds are those of the processor, so that what else runs on the machine
is not counted. Writes records to results/bench and figures/bench/candidates.{csv,md}.
"""

import argparse
import importlib.metadata
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

CANDIDATES, CONTEXTS, WIDTH, ROUNDS = 500_000, 10_000, 300, 3
ROOT = Path(__file__).resolve().parent.parent
OURS, BARRED, FAISS = "ours", "ours, a candidate of each context barred", "faiss IndexFlatIP"
PRODUCTS = "ours, all products in float32"  # as where the processor has no units for bfloat16
ALIKE, FAISS_ALIKE = f"{OURS}, vectors alike", f"{FAISS}, vectors alike"  # as those of models are: cosines of 0.81
CONTENDERS = (OURS, BARRED, PRODUCTS, FAISS, ALIKE, FAISS_ALIKE)


def made(candidates, contexts, width, shared=0.0):
    """Vectors of length about 1, as numpy arrays; `shared` is the cosine of each with a direction that all share."""
    import numpy as np

    rng = np.random.default_rng(0)
    sizes = (contexts, candidates, 1)
    ours, theirs, direction = (rng.standard_normal((n, width), dtype=np.float32) / width**0.5 for n in sizes)
    own = np.float32((1 - shared**2) ** 0.5)
    return [(own * x + np.float32(shared) * direction).astype(np.float32) for x in (ours, theirs)]


def held_against(name):
    """faiss on the same vectors."""
    return FAISS_ALIKE if name in (ALIKE, FAISS_ALIKE) else FAISS


def peak():
    """Bytes of memory that this process had at most (Linux)."""
    line = next(x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith("VmHWM"))
    return 1024 * int(line.split()[1])


def time_one(name, candidates, contexts, width):
    """Seconds and memory of one contender above its imports and vectors, and what it finds."""
    import torch

    import redditbias_repro.answers.ranker as ranker
    from redditbias_repro.answers.ranker import find_best

    torch.set_num_threads(1)
    ours, theirs = made(candidates, contexts, width, 0.9 if held_against(name) == FAISS_ALIKE else 0.0)
    a, b = torch.from_numpy(ours), torch.from_numpy(theirs)
    if name == PRODUCTS:
        ranker._has_bfloat16_units = lambda device: False
    find_best(a[:64], b[:8192], progress=False)
    if (forget := Path("/proc/self/clear_refs")).exists():
        forget.write_text("5")  # the most memory is counted from here
    building, start = 0.0, time.process_time()
    if name == held_against(name):
        import faiss

        faiss.omp_set_num_threads(1)
        before, start = peak(), time.process_time()
        index = faiss.IndexFlatIP(width)
        index.add(theirs)
        building, start = time.process_time() - start, time.process_time()
        found = index.search(ours, 1)[1][:, 0]
    else:
        barred = [(i, (7 * i) % candidates) for i in range(contexts)] if name == BARRED else []
        before, start = peak(), time.process_time()
        found = find_best(a, b, barred, progress=False).numpy()
    seconds = time.process_time() - start
    return {"seconds": seconds, "building": building, "bytes": peak() - before, "found": found.tolist()}


def measure(rounds, sizes):
    """What each contender needed, by round; the number of contexts for which it found another candidate than faiss."""
    runs = {}
    for i in range(rounds):
        for name in CONTENDERS:
            command = [sys.executable, __file__, "--one", name, *map(str, sizes)]
            done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
            if done.returncode:
                raise SystemExit(f"{name}: {done.stderr.strip().splitlines()[-1]}")
            runs.setdefault(name, []).append(json.loads(done.stdout.splitlines()[-1]))
        said = ", ".join(f"{n} {r[-1]['seconds']:.2f} s" for n, r in runs.items())
        print(f"round {i + 1} of {rounds}: {said}", file=sys.stderr)
    other = {n: sum(a != b for a, b in zip(r[0]["found"], runs[held_against(n)][0]["found"])) for n, r in runs.items()}
    return runs, other


def write(runs, other, sizes):
    """A record for each contender."""
    import torch

    from redditbias_repro.answers.ranker import _has_bfloat16_units
    from redditbias_repro.records import provenance, write_record

    units = _has_bfloat16_units(torch.device("cpu"))
    for name, rounds in runs.items():
        seconds = [r["seconds"] for r in rounds]
        of_faiss = [f["seconds"] / r["seconds"] for f, r in zip(runs[held_against(name)], rounds)]
        values = {
            "median_seconds": round(statistics.median(seconds), 3),
            "times_as_fast_as_faiss": round(statistics.median(of_faiss), 3),
            "building_seconds": round(statistics.median(r["building"] for r in rounds), 3),
            "megabytes": round(max(r["bytes"] for r in rounds) / 1e6),
            "other_candidates": other[name],
        }
        origin = provenance({"name": "none"}, {"name": "made vectors, seed 0"}, processor())
        origin |= {"faiss": importlib.metadata.version("faiss-cpu"), "bfloat16_units": units}
        what = {"paper": "bench", "metric": "candidates", "bias_type": "all", "method": name, "model": "none"}
        what |= {"corpus": "made", "split": "all", "n": len(seconds)}
        params = dict(zip(("candidates", "contexts", "width"), sizes))
        how = {"seed": 0, "params": params, "seconds": round(sum(seconds), 1)}
        write_record({**what, **how, "values": values, "provenance": origin})


def processor():
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").is_file() else []
    return next((x.split(":", 1)[1].strip() for x in lines if x.startswith("model name")), "cpu")


def table(folder=None):
    """A row a contender, and the caption."""
    import pandas as pd

    from redditbias_repro.records import read_records

    rows = read_records(folder, paper="bench", metric="candidates").set_index("method").loc[list(CONTENDERS)]
    about, first = rows.provenance.iloc[0], rows.iloc[0]
    same = "all find the same" if not rows.other_candidates.drop(BARRED).any() else "they DIFFER"
    caption = (
        f"The best of {first.candidates:,} candidates for each of {first.contexts:,} contexts, by the dot product of "
        f"vectors of {first.width} numbers: {same}. The processor has {'' if about['bfloat16_units'] else 'no '}"
        "bfloat16 units, with which ours rules out candidates that cannot be the best; it compares the rest in "
        "float32. Alike: each vector has a cosine of 0.9 with one direction. "
        f"One core ({about['device']}), each contender in its own process, "
        f"medians of {first.n} rounds in seconds of CPU time; ratio: the median over rounds. Memory: the peak "
        "above what the process used with its vectors loaded; faiss keeps a copy of the candidates, and the time to "
        f"build it is not counted. faiss-cpu {about['faiss']}, "
        f"torch {about['libraries']['torch']}."
    )
    columns = {
        "contender": rows.index,
        "seconds": rows.median_seconds.to_numpy(),
        "times_as_fast_as_faiss": rows.times_as_fast_as_faiss.to_numpy(),
        "building": rows.building_seconds.to_numpy(),
        "megabytes": rows.megabytes.to_numpy(),
    }
    table = pd.DataFrame(columns)
    headers = ("contender", "seconds", "times as fast as faiss", "seconds to build", "memory, MB")
    table.attrs["shown"] = dict(zip(table, headers))
    return table, caption


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--candidates", type=int, default=CANDIDATES)
    parser.add_argument("--contexts", type=int, default=CONTEXTS)
    parser.add_argument("--width", type=int, default=WIDTH)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--try", dest="dry", action="store_true", help="print, and write nothing")
    drawn = "measure nothing: the table from the records that are there"
    parser.add_argument("--draw", action="store_true", help=drawn)
    parser.add_argument("--one", nargs=4, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})  # one core, for this and what it starts
    if given.one:
        print(json.dumps(time_one(given.one[0], *map(int, given.one[1:]))))
        return
    sizes = (given.candidates, given.contexts, given.width)
    if not given.draw:
        runs, other = measure(given.rounds, sizes)
        if given.dry:
            for name, rounds in runs.items():
                median = statistics.median(
                    f["seconds"] / r["seconds"] for f, r in zip(runs[held_against(name)], rounds)
                )
                print(
                    f"{name}: {median:.2f} times as fast as faiss, "
                    f"{rounds[0]['bytes'] / 1e6:.0f} MB, {other[name]} others"
                )
            return
        write(runs, other, sizes)
    from redditbias_repro.show import save_table, to_markdown

    rows, caption = table()
    save_table(rows, ROOT / "figures" / "bench" / "candidates", caption)
    print(to_markdown(rows, caption))


if __name__ == "__main__":
    main()
