"""How long larger work would take: the throughputs in results/bench, and what they come to by a formula.

`python bench/scaling.py` prints the numbers of docs/appendix/scaling.md; --readme puts them there. Nothing is measured here.
"""

import argparse
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MARKS = ("<!-- scaling: written by `python bench/scaling.py --readme` -->", "<!-- /scaling -->")
PROMPTS = {"v1.0": 460_980, "v1.1": 549_120}  # that can be compared, all axes and templates (tests count them)
LARGE = 7e9  # parameters
DEVICES = (1e14, 4e14)  # matrix products a second (FLOP/s): put in your own, nothing here was measured on a GPU
DUMPS = 1e13  # bytes of lines: put in your own


def measured():
    """What the records say: scoring, scanning, training."""
    from redditbias_repro.records import read_records

    rows = read_records(paper="bench")
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
    """prompts × positions a prompt × 2 × parameters / (share of peak × peak)."""
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
        "**Measured** (two CPU cores, SmolLM2-135M-Instruct, float32):",
        "",
        "| what | number | record |",
        "|---|---:|---|",
        f"| 100,000 HolisticBias prompts, as a tree | {m['seconds']:.0f} s, {m['prompts_per_second']:.0f} a second "
        "| `results/bench/scoring` |",
        f"| tokens that go through the network, a prompt | {m['positions_per_prompt']:.2f} | the same |",
        f"| share of the best matrix product ({m['peak'] / 1e9:.0f} GFLOP/s) | {m['share_of_peak']:.2f} | the same |",
        f"| scan of a dump's lines, one core, one bias type | {one / 1e6:.0f} MB/s | `results/bench/retrieval` |",
        f"| the same, five bias types in one pass | {five / 1e6:.0f} MB/s | the same |",
        f"| a step of HD, {m['batch']} phrases, packed as `debias` trains, {threads(m['threads'])} | {m['step']:.1f} s "
        "| `results/bench/debias` |",
        f"| largest of {m['axes']} axes of v1.0, share of its prompts | {m['largest_axis']:.2f} "
        "| `results/holisticbias/likelihood_bias` |",
        "",
        "**Extrapolated, not measured.** Seconds of scoring = prompts × tokens a prompt × 2 × parameters ÷ (share of "
        "the best matrix product × that product). For the measured run itself the formula gives "
        f"{check:.0f} s. `v1.1` is all {PROMPTS['v1.1']:,} prompts that can be compared.",
        "",
        "| v1.1, sentence reading | best matrix product | seconds by the formula |",
        "|---|---|---:|",
    ]
    for parameters, peak, what in (
        (m["parameters"], m["peak"], "135M, these two cores"),
        (LARGE, m["peak"], "7B, these two cores"),
        *((LARGE, p, "7B, a device with") for p in DEVICES),
    ):
        seconds = score_seconds(PROMPTS["v1.1"], parameters, peak, m)
        lines.append(f"| {what} | {peak / 1e12:,.3g} TFLOP/s | {span(seconds)} |")
    cut = m["largest_axis"]
    lines += [
        "",
        f"Eight devices with an axis a job: not below {cut:.2f} of one device's time, which is the largest axis' "
        f"share; so a speed-up of at most {1 / cut:.1f}. Texts divided among processes (`accelerator=`) have no such "
        "bound, but each process shares beginnings only with its own.",
        "",
        f"Scanning {DUMPS / 1e12:.0f} TB of lines (an assumed size; yours is what `zstd --list` calls uncompressed) "
        f"for five bias types: bytes ÷ {five / 1e6:.0f} MB/s = {span(DUMPS / five)} on one core, "
        f"{span(DUMPS / five / 64)} on 64 cores, a job a file, if disks keep up.",
        "",
        f"Debiasing: a step grows with the parameters, {m['step']:.1f} s × 7B ÷ 135M = "
        f"{span(m['step'] * LARGE / m['parameters'])} on {threads(m['threads'])}. "
        f"Memory of 7B: weights {LARGE * 2 / 1e9:.0f} GB in bfloat16, {LARGE * 4 / 1e9:.0f} GB in float32; to train "
        f"all of it with Adam in float32 takes 16 bytes a parameter, {LARGE * 16 / 1e9:.0f} GB, "
        f"{LARGE * 16 / 8e9:.0f} GB on each of eight "
        "devices when it is divided among them (FSDP), activations not counted.",
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
