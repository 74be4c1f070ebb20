"""How fast a dump is scanned: ours, `zstd -dc FILE > /dev/null`, and a loop of json with a compiled regular expression.

`make bench-retrieval` runs it (2 minutes). It makes a dump of 1 GB: random words between keys as Reddit's dumps have
them, a query in one line of 200. On one core every contender, a process of its own, reads the same file in each round;
the `zstd` command is needed. Writes records to results/bench and figures/bench/retrieval.{csv,md}.
"""

import argparse
import hashlib
import importlib.metadata
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pandas as pd

SIZE = 1_000_000_000
HITS = 0.005
ROUNDS = 5
ROOT = Path(__file__).resolve().parent.parent


def make_dump(path, size, seed=0):
    """A .zst file (level 3, long window) whose lines are together `size` bytes, with a query in one of 200."""
    import zstandard

    from redditbias_repro.specs import BIAS_TYPES, load_spec

    rng = random.Random(seed)
    queries = [q.lower() for b in BIAS_TYPES for q in load_spec(f"redditbias/{b}").queries(wildcards=False)]
    letters = "etaoinshrdlucmfwypvbgkjqxz"
    words = ["".join(rng.choices(letters, range(26, 0, -1), k=rng.randint(1, 10))) for _ in range(30_000)]
    weights = [1 / (i + 1) for i in range(len(words))]  # Zipf
    pool = rng.choices(words, weights, k=1 << 20)
    params = zstandard.ZstdCompressionParameters.from_level(3, window_log=27, enable_ldm=True)
    written = 0
    with path.open("wb") as f, zstandard.ZstdCompressor(compression_params=params).stream_writer(f) as out:
        while written < size:
            lines = []
            for _ in range(1000):
                n, at = rng.randint(5, 60), rng.randrange(len(pool) - 60)
                body = pool[at : at + n]
                if rng.random() < HITS:
                    t = rng.choice(queries).split(" ")
                    body[n // 2 : n // 2] = t
                lines.append(json.dumps(comment(rng, " ".join(body))))
            block = ("\n".join(lines) + "\n").encode()
            out.write(block)
            written += len(block)
    return written


def comment(rng, body):
    """What a line of a dump holds."""
    return {
        "all_awardings": [], "author": f"u{rng.randrange(10**7)}",
        "author_created_utc": rng.randrange(10**9, 16 * 10**8), "author_flair_css_class": None,
        "author_flair_text": None, "author_flair_type": "text", "author_fullname": f"t2_{rng.randrange(10**9):x}",
        "author_premium": False, "awarders": [], "body": body, "can_gild": True, "collapsed": False,
        "controversiality": 0, "created_utc": rng.randrange(1_500_000_000, 1_600_000_000), "distinguished": None,
        "edited": False, "gilded": 0, "gildings": {}, "id": f"{rng.randrange(36**6):x}",
        "is_submitter": rng.random() < 0.2, "link_id": f"t3_{rng.randrange(10**9):x}", "locked": False,
        "parent_id": f"t1_{rng.randrange(10**9):x}", "permalink": f"/r/x/comments/{rng.randrange(10**9):x}/",
        "retrieved_on": 1_600_000_000, "score": rng.randint(-9, 99), "send_replies": True, "stickied": False,
        "subreddit": f"s{rng.randrange(300)}", "subreddit_id": f"t5_{rng.randrange(10**6):x}",
        "total_awards_received": 0,
    }  # fmt: skip


# --- contenders: each prints how many it found and a digest of what ---


def ours(path, types):
    from redditbias_repro.data.making.retrieval import Matcher, scan_dump
    from redditbias_repro.specs import load_spec

    return [
        (r["id"], r["bias_type"])
        for r in scan_dump(path, Matcher({b: load_spec(f"redditbias/{b}") for b in types}), progress=False)
    ]


def loop(path, types):
    """Every line through json, then a compiled regular expression of the target phrases and one of the attributes."""
    import io

    import zstandard

    from redditbias_repro.specs import load_spec

    def pattern(terms):
        ends = (
            re.escape(t.rstrip("*")) + (r"\w*" if t.endswith("*") else "") for t in sorted(terms, key=len, reverse=True)
        )
        return re.compile(rf"(?<!\w)(?:{'|'.join(ends)})(?!\w)", re.IGNORECASE)

    specs = {b: load_spec(f"redditbias/{b}") for b in types}
    patterns = {b: (pattern(s.targets1), pattern(s.attributes1)) for b, s in specs.items()}
    found = []
    with open(path, "rb") as f, zstandard.ZstdDecompressor(max_window_size=2**31).stream_reader(f) as stream:
        for line in io.TextIOWrapper(stream, encoding="utf-8"):
            comment = json.loads(line)
            body = comment["body"]
            found += [
                (comment["id"], b)
                for b, (targets, attributes) in patterns.items()
                if targets.search(body) and attributes.search(body)
            ]
    return found


ZSTD, ONE, FIVE, LOOP = (
    "zstd -dc",
    "ours, one bias type",
    "ours, five bias types",
    "json and a regular expression, one bias type",
)
CONTENDERS = {
    ONE: (ours, ["religion1"]),
    FIVE: (ours, ["religion1", "religion2", "race", "gender", "orientation"]),
    LOOP: (loop, ["religion1"]),
}


def time_one(name, path):
    """Seconds, hits and a digest of what one contender finds."""
    import zstandard  # noqa: F401

    from redditbias_repro.data.making import retrieval  # noqa: F401

    function, types = CONTENDERS[name]
    start = time.perf_counter()
    found = sorted(function(path, types))
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "hits": len(found), "digest": hashlib.sha256(repr(found).encode()).hexdigest()}


def zstd(path):
    start = time.perf_counter()
    subprocess.run(["zstd", "-dcq", "--long=31", path], stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - start


def peak(path):
    """Bytes that a scan takes at most above what a process has after its imports (Linux)."""
    code = (
        "import re, sys; sys.path.insert(0, 'bench'); import retrieval, zstandard, orjson, hyperscan; "
        "from redditbias_repro.data.making import retrieval as r\n"
        "now = lambda: int(re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1])\n"
        "a = now(); retrieval.time_one(retrieval.FIVE, sys.argv[1]); print((now() - a) * 1024)"
    )
    command = [sys.executable, "-c", code, str(path)]
    return int(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout)


def measure(path, rounds, slow_rounds):
    """Seconds of each contender by round, and what it found."""
    seconds, found = {}, {}
    for i in range(rounds):
        seconds.setdefault(ZSTD, []).append(zstd(path))
        for name in CONTENDERS:
            if CONTENDERS[name][0] is ours or i < slow_rounds:
                command = [sys.executable, __file__, "--one", name, str(path)]
                done = subprocess.run(command, capture_output=True, text=True, check=True)
                result = json.loads(done.stdout.splitlines()[-1])
                seconds.setdefault(name, []).append(result["seconds"])
                found[name] = (result["hits"], result["digest"])
        said = ", ".join(f"{n} {s[-1]:.2f} s" for n, s in seconds.items())
        print(f"round {i + 1} of {rounds}: {said}", file=sys.stderr)
    return seconds, found


# --- records and the table ---


def write(seconds, found, size, compressed, memory):
    """A record for each contender."""
    from redditbias_repro.records import provenance, write_record

    libraries = {n: importlib.metadata.version(n) for n in ("hyperscan", "orjson", "zstandard")}
    same = found[ONE][1] == found[LOOP][1]
    for name, times in seconds.items():
        hits = found.get(name, (None, ""))[0]
        values = {
            "median_seconds": round(statistics.median(times), 3),
            "share_of_zstd": round(statistics.median(z / t for z, t in zip(seconds[ZSTD], times)), 3),
            "of_one_type": round(statistics.median(t / o for t, o in zip(times, seconds[ONE])), 3),
            "hits": hits,
            "same_as_loop": same,
            "megabytes_of_memory": round(memory / 1e6),
        }
        corpus = {"name": f"made dump, {size:,} bytes, {compressed:,} as zstd, seed 0"}
        origin = provenance({"name": "none"}, corpus, "cpu") | {"scanning": libraries | {"zstd": version()}}
        what = {"paper": "bench", "metric": "retrieval", "bias_type": "all", "method": name, "model": "none"}
        what |= {"corpus": "made", "split": "all", "n": len(times)}
        how = {"seed": 0, "params": {"bytes": size}, "seconds": round(sum(times), 1)}
        write_record({**what, **how, "values": values, "provenance": origin})


def table(folder=None):
    """A row a contender, and the caption."""
    from redditbias_repro.records import read_records

    rows = read_records(folder, paper="bench", metric="retrieval").set_index("method").loc[[ZSTD, *CONTENDERS]]
    size, about = rows.bytes.iloc[0], rows.provenance.iloc[0]
    faster = rows.median_seconds[LOOP] / rows.median_seconds[ONE]
    same = "the same hits" if rows.same_as_loop.all() else "OTHER HITS"
    versions = ", ".join(f"{k} {v}" for k, v in about["scanning"].items())
    caption = (
        f"Corpus: {about['corpus']['name']}; one line in {round(1 / HITS)} contains a query. One core, medians of "
        "rounds, each contender in its own process. Times include compiling patterns but not loading libraries. "
        f"One bias type: {rows.share_of_zstd[ONE]:.2f} of the speed of `zstd -dc FILE > /dev/null`, {faster:.1f} times "
        f"that of json with a compiled regular expression, with {same}. "
        f"Five bias types in one pass take {rows.of_one_type[FIVE]:.2f} times as long as one. Memory above the "
        f"imports: {rows.megabytes_of_memory.max():.0f} MB, 134 of it the window that the file was compressed with. "
        f"{versions}."
    )
    columns = {
        "contender": rows.index,
        "rounds": rows.n.to_numpy(),
        "seconds": rows.median_seconds.to_numpy(),
        "GB_a_second": (size / 1e9 / rows.median_seconds).to_numpy(),
        "share_of_zstd": rows.share_of_zstd.to_numpy(),
        "hits": rows.hits.astype("Int64").to_numpy(),
    }
    table = pd.DataFrame(columns)
    headers = ("contender", "rounds", "seconds", "GB per second", "share of zstd's speed", "hits")
    table.attrs["shown"] = dict(zip(table, headers))
    return table, caption


def version():
    return re.search(r"v(\d[\d.]*)", subprocess.run(["zstd", "--version"], capture_output=True, text=True).stdout)[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bytes", type=int, default=SIZE, help="size of the dump (default: %(default)s)")
    halved = "the loop runs in half of them (default: %(default)s)"
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=halved)
    parser.add_argument("--keep", type=Path, metavar="FILE", help="keep the dump there, and take it from there")
    parser.add_argument("--try", dest="dry", action="store_true", help="print, and write nothing")
    drawn = "measure nothing: the table from the records that are there"
    parser.add_argument("--draw", action="store_true", help=drawn)
    parser.add_argument("--one", nargs=2, metavar=("CONTENDER", "DUMP"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})  # one core, for this and what it starts
    if given.one:
        print(json.dumps(time_one(*given.one)))
        return
    if not given.draw:
        with tempfile.TemporaryDirectory() as d:
            path = given.keep or Path(d) / "RC.zst"
            size = measured_size(path) if path.is_file() else make_dump(path, given.bytes)
            seconds, found = measure(path, given.rounds, max(1, given.rounds // 2))
            if given.dry:
                print(seconds, found, peak(path))
                return
            write(seconds, found, size, path.stat().st_size, peak(path))
    from redditbias_repro.show import save_table, to_markdown

    rows, caption = table()
    save_table(rows, ROOT / "figures" / "bench" / "retrieval", caption)
    print(to_markdown(rows, caption))


def measured_size(path):
    command = f"zstd -dcq --long=31 {path} | wc -c"
    return int(subprocess.run(command, shell=True, capture_output=True, text=True, check=True).stdout)


if __name__ == "__main__":
    main()
