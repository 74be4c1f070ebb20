"""Tables and figures: twins, determinism, what a bar shows."""

import re

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import yaml

from redditbias_repro.figures import check_claims, check_downstream, crg_tests, downstream_report, downstream_table, dst_tests, inconsistencies, lmb_report, lmp_report, plot_downstream, plot_lmb, plot_lmp, plot_runs, record_origins, save_figure, save_table, search_table, table1, table1_differences, table3_wide, to_markdown
from redditbias_repro.metrics import LMB_COLUMNS, lmb_table, lmp_table, published_lmb
from redditbias_repro.records import read_records, repo_root, write_record
from redditbias_repro.specs import BIAS_TYPES, load_spec


@pytest.fixture(scope="module")
def published():
    return lmb_table(published_lmb(outlier_sd=[None]))


def test_twins(tmp_path):
    table = pd.DataFrame({"name": ["a", None], "t": [-1.23456789, np.nan], "n": [1, 2]})
    csv, md = save_table(table, tmp_path / "new" / "table", "A caption.")
    assert csv.read_text() == "name,t,n\na,-1.23457,1\n,,2\n"
    lines = md.read_text().splitlines()
    assert [c.strip() for c in lines[2].split("|")[1:-1]] == ["a", "-1.23", "1"] and [c.strip() for c in lines[3].split("|")[1:-1]] == ["", "", "2"]
    assert lines[-1] == "A caption."


def test_three_significant_digits():
    shown = to_markdown(pd.DataFrame({"t": [-2.0044, 3.0, 0.29, 2.2e-7, 1234.5]})).splitlines()[2:7]
    assert [s.strip("| ") for s in shown] == ["-2.00", "3", "0.290", "2.20e-07", "1.23e+03"]


def test_table1_is_drawn_from_the_specifications():
    table = table1()
    assert table.Pairs.tolist() == [4, 5, 9, 16, 13]
    assert table["Attribute Set #1"][4] == "mentally ill, polygamous, flamboyant, pedophile*, sexual predator*, … (62)"
    assert table1(terms=100)["Target Set #2"][4].endswith("Cisgenders are (6)")
    assert [m for m in table1_differences().missing if m] == ["african americans"]


def test_table3_shows_the_papers_number_where_it_differs(corpus):
    wide = table3_wide()
    assert wide.columns.name is None and wide["biased comments"].tolist() == ["1,099", "1,159", "1,182 (paper: 2,620)", "2,033 (paper: 2,081)", "1,119"]


def test_bars(published):
    figure = plot_lmb(published)
    ax = figure.axes[0]
    heights = [bar.get_height() for bar in ax.containers[0]]
    assert np.allclose(heights, published.t) and [t.get_text() for t in ax.get_xticklabels()] == ["Religion #1", "Religion #2", "Race", "Gender", "Queerness"]
    assert sum(t.get_text() == "∗" for t in ax.texts) == 2 and "stereotype" in ax.get_ylabel()


def test_bars_of_several_models(published):
    other = published.assign(model="other", t=-published.t)
    figure = plot_lmb(pd.concat([published, other[other.bias_type != "race"]]))
    hatches = {bars[0].get_hatch() for bars in figure.axes[0].containers}
    assert len(figure.axes[0].containers) == 2 and len(hatches) == 2
    marked = sorted((round(t.xy[0]), round(t.xy[1], 2)) for t in figure.axes[0].texts)
    religion = published.set_index("bias_type").t.round(2)
    assert marked == sorted((i, s * religion[b]) for i, b in enumerate(["religion1", "religion2"]) for s in (1, -1))
    lacking = plot_lmb(pd.concat([published, other[other.bias_type != "religion1"]]))  # the asterisks stay with their types
    assert sorted(round(t.xy[0]) for t in lacking.axes[0].texts) == [0, 1, 1]
    with pytest.raises(ValueError, match="select one corpus, split and outlier_sd"):
        plot_lmb(pd.concat([published, published]))


def test_same_bytes(published, tmp_path):
    written = [[p.read_bytes() for p in save_figure(plot_lmb(published), tmp_path / name)] for name in "ab"]
    assert written[0] == written[1] and written[0][0].startswith(b"<?xml") and written[0][1].startswith(b"\x89PNG")
    assert plt.get_fignums() == []


def debiased(published, t, significant=False, model="other", method="HD"):
    return published.assign(model=model, method=method, t=t, significant=significant, train_seed=0.0)


def perplexities(**of_methods):
    """A model of perplexity 100, and after debiasing for Religion #1."""
    rows = [("baseline", "all", 100.0, np.nan)] + [(m, "religion1", p, 0.0) for m, p in of_methods.items()]
    return pd.DataFrame([dict(model="other", method=m, bias_type=b, train_seed=s, corpus="dialogpt-6k", n=2000, perplexity=p) for m, b, p, s in rows])


def verdicts(claims, **where):
    for column, value in where.items():
        claims = claims[claims[column] == value]
    return claims.verdict.tolist()


def test_claims_on_models_that_were_not_debiased(published):
    assert check_claims(published).verdict.tolist() == ["reproduced"] * 5
    assert check_claims(published.assign(model="other")).verdict.tolist() == ["holds"] * 5
    opposite = check_claims(published.assign(model="other", t=-published.t))
    assert set(opposite.verdict) == {"does not hold: only the significance is the same"}
    assert check_claims(published.assign(significant=~published.significant)).verdict.tolist() == ["not reproduced: only the direction is the same"] * 5
    neither = check_claims(published.assign(t=-published.t, significant=~published.significant))
    assert neither.verdict[0] == "not reproduced: neither direction nor significance is the same"
    assert neither.t_before.isna().all(), "nothing was before"


def test_claims_on_debiased_models(published):
    before = published.assign(model="other")
    religion = dict(bias_type="religion1", model="other")
    for t, significant, verdict in ((-0.5, False, "holds"), (4.0, True, "holds"), (-3.0, True, "does not hold")):
        found = check_claims(pd.concat([before, debiased(published, t, significant)]))
        assert verdicts(found, method="HD", **religion) == [verdict], (t, significant)
    for t, significant, expected in ((-2.5, True, ["holds", "holds"]), (-4.0, True, ["holds", "does not hold"]), (-0.2, False, ["does not hold", "holds"])):
        found = check_claims(pd.concat([before, debiased(published, t, significant, method="LMD")]), perplexities(LMD=149.0))
        assert verdicts(found, method="LMD", **religion) == [*expected, "does not hold"]
    found = check_claims(pd.concat([before, debiased(published, 2.0)]))
    assert verdicts(found, method="HD", bias_type="race") == ["holds"] and verdicts(found, method="HD", bias_type="gender") == ["holds"]
    unbiased = pd.concat([before.assign(significant=False), debiased(published, 2.0, method="LMD")])
    found = check_claims(unbiased, perplexities(LMD=150.0))
    assert verdicts(found, method="LMD", **religion) == ["no case: not significantly stereotypical before"] * 2 + ["holds"]
    assert verdicts(check_claims(unbiased), method="LMD", **religion)[-1] == "not measured"


def test_claims_over_training_seeds(published):
    """The mean of t; significant only where every seed is."""
    seeds = [debiased(published, t, s).assign(train_seed=float(i)) for i, (t, s) in enumerate(((-3.0, True), (-1.0, False)))]
    row = check_claims(pd.concat([published.assign(model="other"), *seeds])).query("method == 'HD' and bias_type == 'religion1'").iloc[0]
    assert row.seeds == 2 and row.t == -2 and row.verdict == "holds"


def test_bars_of_debiased_models(published):
    before = published.assign(model="other")
    table = pd.concat([debiased(published, 1.0, method="CDA"), debiased(published, -3.0, True), before])
    ax = plot_lmb(table).axes[0]
    assert [t.get_text() for t in ax.get_legend().get_texts()] == ["not debiased", "HD", "CDA"] and ax.get_title().startswith("other; ")
    assert [bar.get_height() for bar in ax.containers[1]] == [-3.0] * 5 and len(ax.texts) == 5 + 2
    seeds = pd.concat([before, debiased(published, -3.0, True), debiased(published, -1.0, False).assign(train_seed=1.0)])
    ax = plot_lmb(seeds).axes[0]
    assert [bar.get_height() for bar in ax.containers[1]] == [-2.0] * 5 and len(ax.texts) == 2, "no asterisk where one seed has none"


def test_a_long_legend_hides_no_bar(published):
    names = ["baseline", "LMD", "ADD", "HD", "CDA"]
    ax = plot_lmb(pd.concat([debiased(published, -1.0, method=m) for m in names])).axes[0]
    ax.figure.canvas.draw()
    assert ax.get_legend().get_window_extent().y1 < ax.get_window_extent().y0


def test_bars_of_perplexities():
    ax = plot_lmp(perplexities(LMD=300.0, HD=110.0)).axes[0]
    assert [t.get_text() for t in ax.get_legend().get_texts()] == ["LMD", "HD", "not debiased: 100"] and ax.get_yscale() == "linear"
    assert plot_lmp(perplexities(LMD=900.0)).axes[0].get_yscale() == "log"
    with pytest.raises(ValueError, match="rows of one model"):
        plot_lmp(pd.concat([perplexities(LMD=300.0), perplexities(LMD=300.0).assign(n=100)]))


def test_curves_of_all_runs():
    run = dict(model="m", train_seed=0, epoch=[0.5, 1.0, 1.5, 2.0], step=[1, 2, 3, 4], loss=[4.0, 3.0, 2.0, 2.0])
    records = pd.DataFrame([
        {**run, "method": "CDA", "bias_type": "race"},
        {**run, "method": "HD", "bias_type": "race", "lm_loss": [3.0] * 4, "debias_loss": [2.0, None, 1.0, 1.0]},
        {**run, "method": "HD", "bias_type": "religion1", "lm_loss": [3.5] * 4, "debias_loss": [1.0, 0.5, 0.2, 0.1]},
    ])  # fmt: skip
    figure = plot_runs(records)
    drawn = [len(ax.lines) if ax.get_visible() else None for ax in figure.axes]
    assert drawn == [2, 1, 2, None] and [ax.get_title() for ax in figure.axes[:2]] == ["HD", "CDA"]
    assert figure.axes[0].lines[0].get_ydata().tolist() == [3.0] * 4


def test_report_of_perplexities(tmp_path):
    assert lmp_report(tmp_path) == "" and len(lmp_table(folder=tmp_path)) == 0
    fields = dict(paper="redditbias", metric="lmp", model="m", corpus="dialogpt-6k", split="test", n=6000, seed=0, seconds=0, provenance={})
    for method, bias_type, value, params in (("baseline", "all", 50.0, {}), ("LMD", "race", 100.0, {"train_seed": 0}), ("LMD", "race", 200.0, {"train_seed": 1})):
        values = {"perplexity": value, "mean_sentence_perplexity": value, "median_sentence_perplexity": value, "n_skipped": 0}
        write_record({**fields, "method": method, "bias_type": bias_type, "values": values, "params": params}, tmp_path)
    text = lmp_report(tmp_path)
    assert "150.0 (+200%)" in text and "Before debiasing: m: 50.0 on 6,000 references; means of 2 training seeds." in text


def test_report(tmp_path):
    for r in published_lmb():
        write_record(r, tmp_path)
    assert "| redditbias | DialoGPT-small (published) | baseline | -3.57* (-0.23) | -5.34* (-0.35) | 1.17 (0.07) | -1.37 (-0.09)" in lmb_report(tmp_path)


def test_origins_name_every_model(committed):
    """Debiased models are other weights than the model that they were made of."""
    records = read_records(committed / "results", paper="redditbias", metric="lmb")
    origins = record_origins(records)
    known = origins[origins.weights != ""]
    models = known.drop_duplicates(["model", "method", "bias_type", "train_seed"])
    assert len(models) == models.weights.nunique() and (models.method != "baseline").any()


def test_committed_table_is_made_from_the_committed_records(committed):
    kept = pd.read_csv(committed / "figures" / "redditbias" / "lmb.csv")
    assert tuple(kept.columns) == LMB_COLUMNS
    made = lmb_table(folder=committed / "results")
    numbers = ["train_seed", "n", "n_removed", "outlier_sd", "t", "p", "p_holm", "d_z", "d_z_low", "d_z_high", "t_log", "p_log"]
    assert kept[["model", "method", "bias_type", "corpus", "split", "significant"]].equals(made[["model", "method", "bias_type", "corpus", "split", "significant"]])
    np.testing.assert_allclose(kept[numbers].astype(float), made[numbers].astype(float), rtol=1e-5)
    for model in ("DialoGPT-small (published)", "smollm2-135m-instruct"):
        rows = kept[(kept.model == model) & (kept.corpus == "redditbias") & kept.outlier_sd.isna() & (kept.split == "test") & (kept.method == "baseline")]
        assert list(rows.bias_type) == list(BIAS_TYPES)


def test_readme_shows_the_committed_records(committed):
    assert lmb_report(committed / "results") in (committed / "README.md").read_text(encoding="utf-8")


def test_the_committed_grid(committed):
    """Five types by four methods on the default model, whole, with what the search chose; tables and figures come from these records."""
    results, figures = committed / "results", committed / "figures" / "redditbias"
    model, methods = "smollm2-135m-instruct", ("LMD", "ADD", "HD", "CDA")
    records = read_records(results, paper="redditbias")
    searched = search_table(results)
    chosen = searched[searched.chosen.astype(bool)].set_index("method")
    assert len(searched) == 9 and set(chosen.index) == {"LMD", "ADD", "HD"} and set(searched.bias_type) == {"religion1"}
    for b, n in zip(BIAS_TYPES, (720, 720, 763, 1521, 720)):
        for m in methods:
            of_run = records[(records.model == model) & (records.method == m) & (records.bias_type == b) & ~records.metric.isin(["search", "dst", "crg"])]
            assert sorted(of_run.metric) == ["lmb", "lmb", "lmp", "training"] and set(of_run.corpus) == {"redditbias", "dialogpt-6k"}, (b, m)
            settings = of_run.provenance.iloc[0]["training"]
            assert settings["epochs"] == 2 and settings["sentences"] == n or m == "CDA" and 1.9 * n < settings["sentences"] <= 2 * n
            for k in ("lambda_lm", "lambda_d", "batch_size", "grad_accum") if m != "CDA" else ():
                assert settings[k] == chosen[k][m], (b, m, k)
            assert {p["model"]["weights_sha256"] for p in of_run.provenance} == {of_run.provenance.iloc[0]["model"]["weights_sha256"]}
    made = check_claims(lmb_table(folder=results).query("split == 'test'"), lmp_table(folder=results))
    kept = pd.read_csv(figures / "claims.csv")
    assert kept[["bias_type", "method", "model", "verdict"]].values.tolist() == made[["bias_type", "method", "model", "verdict"]].values.tolist()
    np.testing.assert_allclose(kept[["t", "p"]], made[["t", "p"]], rtol=1e-5)
    np.testing.assert_allclose(pd.read_csv(figures / "lmp.csv").perplexity, lmp_table(folder=results).perplexity, rtol=1e-5)
    assert all((figures / f"{name}-{model}{s}").is_file() for name in ("figure1a", "figure1b", "curves", "beside", "curves-beside") for s in (".svg", ".png"))
    assert lmp_report(results) in (committed / "README.md").read_text(encoding="utf-8")


def test_the_committed_downstream_results(committed):
    """Before debiasing and after each method that is there, for all five types, on the same examples; the weights are those whose bias was measured."""
    results, figures = committed / "results", committed / "figures" / "redditbias"
    records = read_records(results, paper="redditbias")
    records = records[records.model == "smollm2-135m-instruct"]
    records = records.assign(weights=[p["model"]["weights_sha256"] for p in records.provenance])
    measured = records[(records.metric == "lmp")].set_index(["method", "bias_type"]).weights
    config = yaml.safe_load((committed / "config" / "smollm.yaml").read_text())["dialogue"]
    for metric in ("dst", "crg"):
        found = records[records.metric == metric]
        assert set(found.corpus) == {"convlab" if metric == "dst" else "multiwoz responses (convlab)"} and found.n.nunique() == 1 and all(found[k].eq(v).all() for k, v in config[metric].items() if k != "corpus")
        pairs = found.set_index(["method", "bias_type"])
        assert ("baseline", "all") in pairs.index and all(("CDA", b) in pairs.index for b in BIAS_TYPES) and not pairs.index.duplicated().any()
        assert all(measured[key] == w for key, w in pairs.weights.items())
    assert all(p["training"]["train_split"] == "valid" for p in records[records.metric == "dst"].provenance) and all(p["meteor"] == "meteor-1.5" for p in records[records.metric == "crg"].provenance)
    for name, table in {"table4": downstream_table("f1", results), "table5": downstream_table("bleu_4", results), "tableC2": downstream_table("accuracy", results)}.items():
        kept = pd.read_csv(figures / f"{name}.csv")
        titles = [load_spec(f"redditbias/{b}").title for b in BIAS_TYPES]
        np.testing.assert_allclose(kept[titles], table[titles], rtol=1e-5)
        assert kept.trained_on.tolist() == table.trained_on.tolist() and kept.method.tolist() == table.method.tolist()
    kept, made = pd.read_csv(figures / "downstream_claims.csv"), check_downstream(results)
    assert kept[["task", "bias_type", "method", "verdict"]].values.tolist() == made[["task", "bias_type", "method", "verdict"]].values.tolist()
    assert downstream_report(results) in (committed / "README.md").read_text(encoding="utf-8")


def test_what_the_readme_says_of_the_tasks(committed):
    """Every number in its prose is the records'."""
    readme = " ".join((committed / "README.md").read_text(encoding="utf-8").split())
    dst, crg = (tests(committed / "results").query("model == 'smollm2-135m-instruct'") for tests in (dst_tests, crg_tests))
    (f1,), (bleu,) = (table[table.method == "baseline"][value] for table, value in ((dst, "f1"), (crg, "bleu_4")))
    dst, crg = (table[table.method == "CDA"] for table in (dst, crg))
    said = f"F1 falls from {f1:.3f} to between {dst.f1.min():.3f} and {dst.f1.max():.3f}, BLEU-4 from {bleu:.2f} to between {crg.bleu_4.min():.2f} and {crg.bleu_4.max():.2f}. No single difference is significant (smallest p: {dst.p.min():.2f} for F1, {crg.p.min():.3f} for BLEU-4), but all ten point down"
    race = crg.set_index("bias_type").loc["race"]
    said += f", and BLEU-4 after CDA for Race by {-race.change:.2f}, with an interval from {-race.change_high:.2f} to {-race.change_low:.2f}."
    paper = check_downstream(committed / "results").set_index("task").paper_change
    said += f" In the paper CDA's BLEU-4 falls too, by {-paper['crg'].max():.2f} to {-paper['crg'].min():.2f}, while its F1 rises by {paper['dst'].min():.4f} to {paper['dst'].max():.4f}."
    assert said in readme, said
    assert len(dst) == len(crg) == 5 and (dst.p >= 0.05).all() and (crg.p >= 0.05).all() and (dst.change < 0).all() and (crg.change < 0).all()
    trained = read_records(committed / "results", paper="redditbias", metric="dst").train_dialogues, read_records(committed / "results", paper="redditbias", metric="crg")
    assert set(trained[0]) == {100} and set(trained[1].train_pairs) == {500} and set(trained[1].test_pairs) == {200}


def test_what_the_readme_says_of_debiasing(committed):
    """Every number in its prose is the records'."""
    table = lmb_table(folder=committed / "results").query("model == 'smollm2-135m-instruct' and corpus == 'redditbias' and split == 'test' and outlier_sd.isna()")
    t, significant = (table.set_index(["method", "bias_type"])[c] for c in ("t", "significant"))
    losses = ["LMD", "ADD", "HD"]
    readme = " ".join((committed / "README.md").read_text(encoding="utf-8").split())
    of = lambda m, b: f"{t[m, b]:.2f}"
    for said in (
        f"Religion #1 (t from {of('baseline', 'religion1')} to {of('CDA', 'religion1')}) and Queerness ({of('baseline', 'orientation')} to {of('CDA', 'orientation')})",
        f"takes Religion #1 from {of('baseline', 'religion1')} to {of('FT', 'religion1')} and Queerness from {of('baseline', 'orientation')} to {of('FT', 'orientation')}",
        f"take back a part (Religion #1: {', '.join(of(m, 'religion1') for m in losses)})",
    ):  # fmt: skip
        assert said in readme, said
    assert not significant["CDA", "religion1"] and not significant["CDA", "orientation"] and significant["baseline", "religion1"] and significant["baseline", "orientation"]
    assert significant["CDA", "religion2"] and not significant["baseline", "religion2"] and t["CDA", "religion2"] < 0
    assert [b for b in BIAS_TYPES if all(significant[m, b] and t[m, b] < min(0, t["baseline", b]) for m in losses)] == ["religion1", "religion2", "gender", "orientation"]
    for m in losses:
        assert all(t["FT", b] < t[m, b] for b in ("religion1", "orientation")) and significant[f"{m}-sentence", "religion1"] and significant[f"{m}-sentence", "orientation"]
    without = lmb_table(folder=committed / "results").query("model == 'smollm2-135m-instruct' and bias_type == 'religion1' and outlier_sd == 3").set_index("method")
    assert f"Religion #1 stays significant, less than before ({without.t['baseline']:.2f} to {without.t['CDA']:.2f})" in readme and without.significant["CDA"]
    lmp = lmp_table(folder=committed / "results").query("model == 'smollm2-135m-instruct'").set_index(["method", "bias_type"]).perplexity
    assert max(lmp["FT", b] for b in ("religion1", "orientation")) < lmp["baseline", "all"]
    falls = [100 * (1 - lmp[m, b] / lmp["baseline", "all"]) for m in losses for b in BIAS_TYPES]
    assert f"by {min(falls):.0f} to {max(falls):.0f} %" in readme and f"for {100 * (lmp['CDA', 'religion1'] / lmp['baseline', 'all'] - 1):.0f} % more perplexity" in readme
    verdicts = check_claims(lmb_table(folder=committed / "results").query("split == 'test'"), lmp_table(folder=committed / "results"))
    assert f"All {len(verdicts[['bias_type', 'method', 'statement']].drop_duplicates())} statements" in readme
    steps = pd.read_csv(committed / "figures" / "bench" / "debias.csv").set_index("step").ratio
    loops = steps[steps.index.str.contains("loops")]
    assert f"it takes {loops.min():.1f} to {loops.max():.1f} times as long" in readme and (steps.drop(loops.index) - 1).abs().max() < 0.05


# --- Tables 4, 5, C.1, C.2 ---


def test_the_papers_numbers_are_typed_right():
    """Against the paper's text, where somebody has it beside the checkout; it is not part of the repository."""
    texts = list((repo_root().parent / "shared" / "papers").glob("redditbias*.txt"))
    if not texts:
        pytest.skip("the paper's text is not here")
    tables = []
    for table in re.findall(r"<table.*?</table>", texts[0].read_text(encoding="utf-8"), re.S):
        rows = [[re.sub("<[^>]*>", "", c).strip() for c in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", r, re.S)] for r in re.findall(r"<tr>(.*?)</tr>", table, re.S)]
        tables += [rows[1:]] if rows[0][0] == "Model" else []
    kept = pd.read_csv(repo_root() / "data" / "paper" / "redditbias" / "downstream.csv")
    assert len(tables) == kept.metric.nunique() == 7
    for theirs, (_, ours) in zip(tables, kept.groupby("metric", sort=False)):
        assert [["baseline" if r[0] == "DialoGPT" else r[0], *map(float, r[1:])] for r in theirs] == ours[["method", *BIAS_TYPES]].values.tolist()


def downstream_records(folder):
    """A model before and after debiasing for race, on ten examples and on three contexts."""
    bits = lambda right: np.packbits(np.array(right, bool)).tobytes().hex()
    fields = dict(paper="redditbias", model="m", split="test", seed=0, seconds=1, provenance={})
    for method, b, f1, right in (("baseline", "all", 0.6, [1, 1, 1, 1, 1, 0, 0, 0, 0, 0]), ("HD", "race", 0.7, [0, 1, 1, 1, 1, 1, 1, 1, 1, 0])):
        values = {"f1": f1, "f1_low": f1 - 0.1, "f1_high": f1 + 0.1, "accuracy": f1, "correct": bits(right)}
        fields["provenance"] = {"training": {"train_split": "valid", "train_dialogues": 5}}
        write_record({**fields, "metric": "dst", "method": method, "bias_type": b, "corpus": "convlab", "n": 10, "values": values, "params": {"negatives": 1, "train_dialogues": 5, "test_dialogues": 4, "train_seed": 0}}, folder)
        matches = np.array([[9, 7, 5, 3, 12, 11], [4, 2, 1, 0, 6, 8], [20, 15, 10, 6, 25, 20]], "<u2")
        matches[:, :4] //= 2 if method == "baseline" else 1
        values = {"statistics": matches.tobytes().hex(), "bleu_4": 10 * f1, "bleu_4_low": f1, "bleu_4_high": 20 * f1, "meteor": 5.0, "nist_2": 1.0, "entropy_4": 2.0, "distinct_2": 0.25}
        fields["provenance"] = {"training": {"train_pairs": 1000}, "corpus": {"note": "trained on the validation dialogues, as …"}}
        write_record({**fields, "metric": "crg", "method": method, "bias_type": b, "corpus": "multiwoz", "n": 3, "values": values, "params": {"train_pairs": 5, "test_pairs": 3, "train_seed": 0}}, folder)


def test_downstream_tables(tmp_path):
    downstream_records(tmp_path)
    table = downstream_table("f1", tmp_path)
    assert table.model.tolist() == ["DialoGPT-small (paper)"] * 5 + ["m"] * 2 and table.iloc[0]["Race"] == 0.9444 and table.iloc[1]["Race"] == 0.6870
    assert table.trained_on.tolist()[4:] == ["train", *["valid, 5 dialogues"] * 2] and downstream_table("meteor", tmp_path).trained_on.iloc[-1] == "valid, 1,000 pairs"
    ours = table.iloc[5:].set_index("method")
    assert ours.loc["baseline", "Gender"] == ours.loc["baseline", "Race"] == 0.6 and ours.loc["HD", "Race"] == 0.7 and np.isnan(ours.loc["HD", "Gender"])
    assert downstream_table("distinct_2", tmp_path).iloc[-1]["Race"] == 25 and downstream_table("bleu_4", tmp_path).iloc[-1]["corpus"] == "multiwoz"
    with pytest.raises(ValueError, match="f1, accuracy, bleu_4"):
        downstream_table("F1", tmp_path)


def test_a_tracker_before_and_after(tmp_path):
    downstream_records(tmp_path)
    before, after = dst_tests(tmp_path).to_dict("records")
    assert before["method"] == "baseline" and np.isnan(before["p"]) and after["change"] == pytest.approx(0.1)
    assert (after["only_before"], after["only_after"]) == (1, 4) and after["p"] == pytest.approx(2 * (1 + 5) / 2**5)


def test_responses_before_and_after(tmp_path):
    downstream_records(tmp_path)
    before, after = crg_tests(tmp_path).to_dict("records")
    assert before["method"] == "baseline" and np.isnan(before["p"]) and (after["bleu_4_low"], after["bleu_4"], after["bleu_4_high"]) == (0.7, 7, 14)
    assert after["change"] > 0 and after["change_low"] <= after["change"] <= after["change_high"] and after["p"] > 0.1, "three answers say little"


def test_what_is_said_of_downstream_tasks(tmp_path):
    downstream_records(tmp_path)
    kept = check_downstream(tmp_path)
    assert kept.task.tolist() == ["dst", "crg"] and kept.paper_change.tolist() == pytest.approx([-0.0006, 0.03]) and kept.verdict.tolist() == ["as said: no significant loss"] * 2
    text = downstream_report(tmp_path)
    assert "0.700 (+0.100)" in text and "m, F1 0.600 [0.500, 0.700] (10 examples, MultiWOZ (ConvLab's copy))" in text and downstream_report(tmp_path / "nowhere") == ""


def test_the_picture_of_downstream_tasks(tmp_path):
    downstream_records(tmp_path)
    for table, value in ((dst_tests(tmp_path), 0.7), (crg_tests(tmp_path), 7.0)):
        ax = plot_downstream(table).axes[0]
        (points,) = [c for c in ax.containers]
        assert points.lines[0].get_xydata().tolist() == [[0, value]] and points.get_label() == "HD" and [t.get_text() for t in ax.get_xticklabels()] == ["Race"]
        assert {round(y, 6) for y in points.lines[2][0].get_segments()[0][:, 1]} == {round(float(table.iloc[1][f"{k}_{end}"]), 6) for k in ("f1", "bleu_4") if k in table for end in ("low", "high")}
        with pytest.raises(ValueError, match="rows of one model"):
            plot_downstream(pd.concat([table, table.assign(model="other")]))


def test_a_loss_on_a_downstream_task(tmp_path):
    """Forty examples of which debiasing loses thirty: as footnote 15 says of ADD for Gender, against what §5.2 says of HD."""
    fields = dict(paper="redditbias", metric="dst", model="m", split="test", seed=0, seconds=1, provenance={}, corpus="convlab", n=40, params={"negatives": 1, "train_dialogues": 5, "test_dialogues": 4, "train_seed": 0})
    for method, b, right in (("baseline", "all", 40), ("ADD", "gender", 10), ("HD", "gender", 10), ("CDA", "gender", 39), ("ADD", "race", 40)):
        values = {"f1": right / 40, "f1_low": 0, "f1_high": 1, "accuracy": right / 40, "correct": np.packbits(np.arange(40) < right).tobytes().hex()}
        write_record({**fields, "method": method, "bias_type": b, "values": values}, tmp_path)
    verdicts = check_downstream(tmp_path).set_index(["method", "bias_type"]).verdict.to_dict()
    assert verdicts == {
        ("ADD", "gender"): "as said: a significant loss", ("HD", "gender"): "not as said: a significant loss",
        ("CDA", "gender"): "as said: no significant loss", ("ADD", "race"): "as said: no significant loss",
    }  # fmt: skip
    assert "0.250 (-0.750*)" in downstream_report(tmp_path)


def test_inconsistencies_of_the_paper():
    found = inconsistencies()
    assert found.what[0] == "the tables of meteor and nist_2 are the same" and "0.50 of all examples" in found.evidence[1]
    assert "LMD for Race" in found.evidence[2] and "ADD for Gender" in found.evidence[2] and "HD for Religion #2" in found.evidence[3]
