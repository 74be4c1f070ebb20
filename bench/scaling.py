"""How long larger work would take: an estimate by a formula from the throughputs in results/bench.

`python bench/scaling.py` prints the numbers of docs/appendix/scaling.md; --readme puts them there. It measures nothing.
"""

import argparse
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MARKS = ("<!-- scaling: written by `python bench/scaling.py --readme` -->", "<!-- /scaling -->")
PROMPTS = {"v1.0": 460_980, "v1.1": 549_120}  # comparable ones, of all axes and templates (tests count them)
LARGE = 7e9  # parameters
DEVICES = (1e14, 4e14)  # FLOP/s of matrix products: enter your own, nothing here was measured on a GPU
DUMPS = 1e13  # bytes of lines: enter your own


def measured():
    """What the records say: scoring, scanning, training."""
    from redditbias_repro.records import read_records

    rows = read_records(paper="bench")
    rows = rows[rows.device.isna() | (rows.device == "cpu")]
    scoring = rows[(rows.metric == "scoring") & (rows.method == "tree") & (rows.bias_type == "prompts-100000")].iloc[0]
    made = rows[(rows.metric == "debias") & (rows.method == "HD-packed")].iloc[0]
    scans = {r.method: r.median_seconds for r in rows[rows.metric == "retrieval"].itertuples()}
    size = rows[rows.metric == "retrieval"]["bytes"].iloc[0]
    asked = read_records(paper="holisticbias")
    asked = asked[(asked.metric == "likelihood_bias") & (asked.corpus == "holisticbias-v1.0")]
    sizes = asked[asked.bias_type != "all"].groupby("bias_type")["n"].max()
    return {
        "prompts_per_second": scoring.sentences_per_second,
        "positions_per_prompt": scoring.forward_positions / scoring.n,
        "share_of_peak": scoring.fraction_of_peak,
        "peak": scoring.provenance["matmul_gflops"] * 1e9,
        "parameters": scoring.provenance["model"]["parameters"],
        "seconds": scoring.seconds,
        "bytes_per_second": {k: size / s for k, s in scans.items()},
        "step": made.milliseconds / 1000,
        "batch": made.provenance["batch_size"],
        "threads": int(made.threads),
        "axes": len(sizes),
        "largest_axis": sizes.max() / sizes.sum(),
    }


def score_seconds(n, parameters, peak, m):
    """prompts × positions per prompt × 2 × parameters / (share of peak × peak)."""
    return n * m["positions_per_prompt"] * 2 * parameters / (m["share_of_peak"] * peak)


def span(seconds):
    for size, name in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:,.1f} {name}"
    return f"{seconds:,.0f} seconds"


def threads(n):
    return "one thread" if n == 1 else f"{n} threads"


def report():
    """The part of docs/appendix/scaling.md between the marks."""
    m = measured()
    one, five = (m["bytes_per_second"][f"ours, {k}"] for k in ("one bias type", "five bias types"))
    check = score_seconds(100_000, m["parameters"], m["peak"], m)
    lines = [
        "**Measured** on two CPU cores (SmolLM2-135M-Instruct, float32):",
        "",
        "| quantity | value | record |",
        "|---|---:|---|",
        f"| scoring 100,000 HolisticBias prompts as a tree | {m['seconds']:.0f} s ({m['prompts_per_second']:.0f} per "
        "second) | `results/bench/scoring` |",
        f"| tokens computed per prompt | {m['positions_per_prompt']:.2f} | same record |",
        f"| share of the best matrix product ({m['peak'] / 1e9:.0f} GFLOP/s) | {m['share_of_peak']:.2f} "
        "| same record |",
        f"| scanning the lines of a dump, one core, one bias type | {one / 1e6:.0f} MB/s | `results/bench/retrieval` |",
        f"| scanning for five bias types in one pass, one core | {five / 1e6:.0f} MB/s | same record |",
        f"| one step of HD: {m['batch']} phrases, packed as in `debias`, {threads(m['threads'])} | {m['step']:.1f} s "
        "| `results/bench/debias` |",
        f"| share of v1.0's prompts in the largest of its {m['axes']} axes | {m['largest_axis']:.2f} "
        "| `results/holisticbias/likelihood_bias` |",
        "",
        "**Extrapolated, not measured.** Scoring time in seconds = prompts × tokens per prompt × 2 × parameters ÷ "
        "(share of the best matrix product × speed of that product). For the measured run the formula gives "
        f"{check:.0f} s. `v1.1` means all {PROMPTS['v1.1']:,} comparable prompts.",
        "",
        "| v1.1, sentence reading | best matrix product | time by the formula |",
        "|---|---|---:|",
    ]
    for parameters, peak, what in (
        (m["parameters"], m["peak"], "135M, two cores as above"),
        (LARGE, m["peak"], "7B, two cores as above"),
        *((LARGE, p, "7B, a device of this speed") for p in DEVICES),
    ):
        seconds = score_seconds(PROMPTS["v1.1"], parameters, peak, m)
        lines.append(f"| {what} | {peak / 1e12:,.3g} TFLOP/s | {span(seconds)} |")
    cut = m["largest_axis"]
    lines += [
        "",
        f"**Eight devices, one axis per job**: the run takes at least {cut:.2f} of one device's time, the share of the "
        f"largest axis, so the speed-up is at most {1 / cut:.1f}. Dividing the texts among processes (`accelerator=`) "
        "has no such limit, but each process shares beginnings only among its own texts.",
        "",
        f"**Scanning** {DUMPS / 1e12:.0f} TB of lines for five bias types: bytes ÷ {five / 1e6:.0f} MB/s = "
        f"{span(DUMPS / five)} on one core, or {span(DUMPS / five / 64)} on 64 cores with one job per file, if the "
        "disks keep up. We assumed this size; `zstd --list` shows the uncompressed size of your files.",
        "",
        f"**Debiasing**: the time of a step grows with the parameters, {m['step']:.1f} s × 7B ÷ 135M = "
        f"{span(m['step'] * LARGE / m['parameters'])} on {threads(m['threads'])}.",
        "",
        f"**Memory for 7B**: the weights take {LARGE * 2 / 1e9:.0f} GB in bfloat16 and {LARGE * 4 / 1e9:.0f} GB in "
        "float32. Training all of them with Adam in float32 takes 16 bytes per parameter: "
        f"{LARGE * 16 / 1e9:.0f} GB, or {LARGE * 16 / 8e9:.0f} GB on each of eight devices when sharded (FSDP), not "
        "counting activations.",
    ]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--readme", action="store_true", help="put the numbers into docs/appendix/scaling.md")
    given = parser.parse_args()
    print(report(), end="")
    if given.readme:
        from redditbias_repro.records import write_atomic

        path = ROOT / "docs" / "appendix" / "scaling.md"
        before, rest = path.read_text(encoding="utf-8").split(MARKS[0])
        write_atomic(path, f"{before}{MARKS[0]}\n\n{report()}\n{MARKS[1]}{rest.split(MARKS[1])[1]}")


if __name__ == "__main__":
    main()
