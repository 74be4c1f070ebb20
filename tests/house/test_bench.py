"""The benchmark: its sentences, its measurements, and what is committed of them."""

import importlib.util
import json
from collections import Counter

import numpy as np
import pandas as pd
import pytest
import torch
from conftest import pages

from redditbias_repro.models import loading as models
from redditbias_repro.records import read_records, repo_root


def loaded(name):
    spec = importlib.util.spec_from_file_location(f"bench_{name}", repo_root() / "bench" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def bench():
    return loaded("scoring")


def test_prompts_are_shares_of_the_whole_set(bench, holistic):
    everything = list(bench.all_prompts())
    ten = bench.prompts(10_000)
    assert len(ten) == 10_000 and bench.prompts(1000) == ten[:1000] == bench.prompts(1000)
    found = {p: (axis, template) for axis, template, _, p in everything}
    for which in (0, 1):
        whole, some = Counter(x[which] for x in everything), Counter(found[p][which] for p in ten)
        assert set(some) == set(whole) and max(abs(some[k] / 1e4 - whole[k] / len(everything)) for k in whole) < 0.02


def test_contenders_agree(bench, tmp_path, default_model, made_up, monkeypatch):
    """Each as the benchmark runs it, on a few sentences; the other libraries are installed by `make bench` only."""
    found, texts = {}, bench.sentences("redditbias")
    monkeypatch.setattr(bench, "sentences", lambda name: texts)  # read once, and the model is loaded once
    monkeypatch.setattr(models, "load_model", lambda name, device, dtype: default_model)
    for contender in ("tree", "batches", "loop"):
        out = tmp_path / contender
        bench.measure(contender, "redditbias", 64, out, "any", "cpu", "float32", torch.get_num_threads(), 6)
        found[contender] = json.loads(out.read_text())
    for other in ("tree", "batches"):
        perplexity, nll, over = bench.differences([found[other]], [found["loop"]])
        assert perplexity < 1e-4 and nll < 1e-4 and not len(over)
        assert found[other]["tokens"] == found["loop"]["tokens"] == found[other]["stats"]["tokens"]
    assert (
        found["loop"]["positions"] == found["loop"]["tokens"] + 6
        and found["loop"]["flops"] > 2 * 134e6 * found["loop"]["tokens"]
    )
    assert all(f["seconds"] > 0 and f["sentences"] == 6 for f in found.values())


def test_committed_figures_come_from_committed_records(bench, committed):
    rows = bench.measured(committed / "results")
    for name, own in (("scoring", bench.on_cpu(rows)), ("scoring-gpu", bench.on_gpu(rows))):
        kept, made = pd.read_csv(committed / "figures" / "bench" / f"{name}.csv"), bench.full_table(own)
        assert list(kept.columns) == list(made.columns) and len(kept) == len(made) > 0
        for column in made.columns:
            if pd.api.types.is_numeric_dtype(made[column]):
                np.testing.assert_allclose(kept[column].astype(float), made[column].astype(float), rtol=1e-5)
            else:
                assert kept[column].tolist() == made[column].tolist()
    page, appendix = (
        (committed / "docs" / name).read_text(encoding="utf-8") for name in ("scoring.md", "appendix/scoring.md")
    )
    assert bench.report(committed / "results") in page and bench.details(committed / "results") in appendix
    assert bench.gpu_report(committed / "results") in page
    whole = bench.on_gpu(rows).query("bias_type == 'prompts-all' and method == 'tree'").iloc[0]
    assert f"all {whole.n:,} prompts of HolisticBias v1.0 in {whole.seconds:.0f} seconds" in page and whole.seconds < 60
    gpu, cpu = (of(rows).query("method == 'batches'").groupby("bias_type").times for of in (bench.on_gpu, bench.on_cpu))
    both = sorted({*gpu.groups} & {*cpu.groups})
    assert gpu.max()["religion1"] < 1 and len(both) >= 2 and (gpu.max()[both] < cpu.max()[both]).all()
    said = "The tree helps less than on a CPU", 'length-sorted batches (`path="batches"`) are faster'
    assert [x for x in said if x not in " ".join(page.split())] == []
    own = bench.first_group(rows)
    assert own.device_name.nunique() == own.model.nunique() == 1
    tree = own[own.method == "tree"].set_index("bias_type")
    assert set(tree.index) == set(bench.INPUTS) and (tree.fraction_of_product.dropna() >= tree.fraction_of_peak).all()
    times = own[own.method == "ctranslate2"].set_index("bias_type").times
    assert times.drop("longest").min() >= 1.25 and len(times) >= 7, "CTranslate2 takes at least 1.25 times as long"
    assert times.longest > 1.2, "less on the longest sentences, which share the smallest part of their tokens"
    assert f"{times.min():.1f} to {times.max():.1f} times as fast as CTranslate2" in " ".join(page.split())
    larger = rows[rows.model.str.startswith("Qwen2.5-Coder-0.5B")].set_index("method").times["ctranslate2"]
    assert f"CTranslate2 takes {larger:.1f} times as long as the tree" in " ".join(page.split())


def test_the_figure_says_what_is_found(bench, committed):
    """Dots on a logarithmic axis of ratios to one peer, on what the peer was measured on; the rest is said below."""
    rows = bench.first_group(bench.measured(committed / "results"))
    peer, ratios = bench.faster(rows)
    assert peer == "ctranslate2" and list(ratios.index) == [
        "religion1", "redditbias", "shortest", "longest", "prompts-100", "prompts-1000", "prompts-10000",
        "scattered-10000",
    ]  # fmt: skip
    (ax,) = (figure := bench.draw_speed(rows)).axes
    assert ax.get_xscale() == "log" and not ax.patches
    drawn = {line.get_label(): line.get_xdata() for line in ax.lines if len(line.get_xdata()) == len(ratios)}
    assert set(drawn) == {bench.TITLES[c] for c in ratios}
    assert all(np.array_equal(drawn[bench.TITLES[c]], ratios[c], equal_nan=True) for c in ratios)
    title, below = figure.get_suptitle(), ax.get_xlabel()
    low, high = ratios.tree.agg(["min", "max"])
    assert title.startswith(f"The tree is {low:.1f} to {high:.1f} times as fast as CTranslate2")
    below = below.replace("\n", " ")
    assert "Only the tree was measured on 100,000 HolisticBias prompts (2.9 ms each)" in below
    assert "all of v1.0 (2.9 ms each)" in below
    alone = rows[rows.method.isin(["tree", "loop"])]
    assert "times as fast as one by one" in bench.draw_speed(alone).get_suptitle()


def test_committed_scores_are_those_of_the_loop(committed):
    rows = read_records(committed / "results", paper="bench", metric="scoring")
    tree = rows[(rows.method == "tree") & rows.largest_difference_nll.notna() & (rows.dtype == "float32")]
    assert len(tree) >= 2 and tree.largest_difference_nll.max() < 1e-4
    over = tree[tree.largest_difference > 1e-4]
    assert (over["over_1e-4"] > 0).all() and (tree["over_1e-4"].sum() == 0 or len(over))
    assert (over.over_from_float64 < 1e-4).all(), "where float32 parts them, the tree is within 1e-4 of float64"
    assert (over.over_loop_from_float64 > over.over_from_float64).all(), "and the loop is farther off"


def test_committed_steps_of_training_cost_what_is_allowed(committed):
    """At most 1.25 times a plain step, with losses that are the loops'; the table comes from the records."""
    rows, caption = loaded("debias").table(committed / "results")
    of_ours = rows[~rows.step.str.contains("loops") & (rows.step != "plain language modelling")]
    assert len(of_ours) == len(loaded("debias").CONTENDERS) - 4 == 11 and of_ours.ratio.max() <= 1.25
    packed, loops = (rows[rows.step.str.contains(kind)].ratio for kind in ("packed", "loops"))
    of = "of the time of plain language modelling on padded batches"
    for said in (
        f"takes {packed.min():.2f} to {packed.max():.2f} {of}",
        f"as loops over sentences and pairs it takes {loops.min():.1f} to {loops.max():.1f} times as long",
    ):
        assert said in " ".join(pages(committed).split()), said
    assert read_records(committed / "results", paper="bench", metric="debias").largest_difference.max() < 1e-5
    np.testing.assert_allclose(pd.read_csv(committed / "figures" / "bench" / "debias.csv").ratio, rows.ratio, rtol=1e-5)
    assert caption in (committed / "figures" / "bench" / "debias.md").read_text(encoding="utf-8")


def test_the_retrieval_benchmark_on_a_small_dump(tmp_path):
    """Ours finds what the loop finds."""
    bench = loaded("retrieval")
    dump = tmp_path / "RC.zst"
    assert bench.make_dump(dump, 2_000_000) >= 2_000_000
    found = {name: bench.time_one(name, dump) for name in bench.CONTENDERS}
    assert found[bench.ONE]["digest"] == found[bench.LOOP]["digest"] and found[bench.ONE]["hits"] > 0
    assert found[bench.FIVE]["hits"] > found[bench.ONE]["hits"]


def test_committed_candidates_are_found_at_least_as_fast_as_by_faiss(committed):
    bench = loaded("candidates")
    rows, caption = bench.table(committed / "results")
    times = rows.set_index("contender").times_as_fast_as_faiss
    assert "500,000 candidates" in caption and "10,000 contexts" in caption and "all find the same" in caption
    assert min(times[c] for c in (bench.OURS, bench.BARRED, bench.ALIKE)) >= 1
    memory = rows.set_index("contender").megabytes
    assert memory[bench.OURS] < memory[bench.FAISS]
    with_units, without = (f"{times[name]:.1f}" for name in (bench.OURS, bench.PRODUCTS))
    said = f"{with_units} times as fast as faiss-cpu if the CPU has bfloat16 units, and {without} times as fast without"
    assert f"{said} them" in " ".join(pages(committed).split())
    assert caption in (committed / "figures" / "bench" / "candidates.md").read_text(encoding="utf-8")


def test_committed_scans_are_as_fast_as_is_asked(committed):
    """On a dump of at least 1 GB; the table comes from the records."""
    rows, caption = loaded("retrieval").table(committed / "results")
    records = read_records(committed / "results", paper="bench", metric="retrieval").set_index("method")
    bench = loaded("retrieval")
    assert records.bytes.min() >= 1_000_000_000 and records.same_as_loop.all()
    assert records.share_of_zstd[bench.ONE] >= 0.6 and records.of_one_type[bench.FIVE] <= 1.3
    assert records.median_seconds[bench.LOOP] / records.median_seconds[bench.ONE] >= 8
    kept = pd.read_csv(committed / "figures" / "bench" / "retrieval.csv")
    np.testing.assert_allclose(kept.seconds, rows.seconds, rtol=1e-5)
    assert caption in (committed / "figures" / "bench" / "retrieval.md").read_text(encoding="utf-8")
    readme = pages(committed)
    faster = records.median_seconds[bench.LOOP] / records.median_seconds[bench.ONE]
    for said in (
        f"at {records.share_of_zstd[bench.ONE]:.2f} of the speed of",
        f"{faster:.1f} times as fast as with json",
        f"take {records.of_one_type[bench.FIVE]:.2f} times as long as one",
    ):
        assert said in readme, said
