"""What docs/appendix/chinese.md says of association, by the committed records."""

import pytest

from redditbias_repro.data.corpora.chbias import CATEGORIES
from redditbias_repro.records import read_records
from redditbias_repro.stats.multiplicity import holm


@pytest.fixture(scope="module")
def every(committed):
    return read_records(committed / "results", paper="chbias", metric="association", method="baseline")


@pytest.fixture(scope="module")
def measured(every):
    return every[every.model == "gemma-3-270m"].set_index(["corpus", "bias_type"])


def test_the_page_says_what_the_records_say(committed, measured):
    page = " ".join((committed / "docs" / "appendix" / "chinese.md").read_text(encoding="utf-8").split())
    minus = lambda text: text.replace("-", "−")
    between = lambda r, low, high: minus(f"[{r[low]:.2f}, {r[high]:.2f}]")
    sentences, queries = ([measured.loc[(corpus, b)] for b in CATEGORIES] for corpus in ("chbias", "queries"))
    assert [r.over for r in sentences] == ["attributes", "targets", "targets and attributes", "targets"]

    def cells(of_types):
        adjusted = iter(holm([max(r.p, r.p_flip) for r in of_types if r.p == r.p]))
        for r in of_types:
            said, p = minus(f"{r.association:.2f}"), next(adjusted) if r.p == r.p else None
            yield f"{said} (no test)" if p is None else f"{said}{'*' if p < 0.05 else ''} {between(r, 'low', 'high')}"

    rows = {
        "association": cells(sentences),
        "sentences of 200": [str(r.n) for r in sentences],
        "target terms, attributes": [f"{r.n_targets}, {r.n_attributes}" for r in sentences],
        "bootstrap interval": [between(r, "bootstrap_low", "bootstrap_high") for r in sentences],
        "control without a stereotype": [
            minus(f"{r.control:.2f} {between(r, 'control_low', 'control_high')}") for r in sentences
        ],
        "queries instead of sentences": cells(queries),
    }
    for name, row in rows.items():
        assert f"| {name} | {' | '.join(row)} |" in page, name
    inside = [r.left_out["inside a word"] for r in sentences]
    assert "part of such a word is left out ({}, {}, {} and {} sentences)".format(*inside) in page


def test_no_model_has_a_significant_association(committed, every):
    """Qwen2.5-Coder's row, and what the short page says of both models."""
    texts = [(committed / "docs" / p / "chinese.md").read_text(encoding="utf-8") for p in ("", "appendix")]
    short, page = (" ".join(text.split()) for text in texts)
    assert set(every.model) == {"gemma-3-270m", *(f"qwen2.5-coder-{size}b-instruct" for size in ("0.5", "1.5"))}
    for _, own in every[every.corpus == "chbias"].groupby("model"):
        own = own.set_index("bias_type")
        assert (holm(own[["p", "p_flip"]].max(axis=1)) > 0.05).all() and own.association.idxmax() == "appearance"
        assert (own.p > 0.05).all()
    looks = every[(every.corpus == "chbias") & (every.bias_type == "appearance")].set_index("model").association
    gemma, small, large = (f"{looks[m]:.2f}" for m in sorted(looks.index))
    said = (
        f"in all three models: gemma-3-270m {gemma} nats, Qwen2.5-Coder-1.5B {large}, the 0.5B {small} (uncorrected p"
    )
    assert said in short
    for size in ("0.5", "1.5"):
        qwen = every[every.model == f"qwen2.5-coder-{size}b-instruct"].set_index("bias_type").loc[list(CATEGORIES)]
        cells = [f"{r.association:.2f} [{r.low:.2f}, {r.high:.2f}]".replace("-", "−") for r in qwen.itertuples()]
        assert f"| {size}B: association | {' | '.join(cells)} |" in page


def test_nothing_is_found_where_there_is_no_stereotype(measured):
    """The control of every category: its interval holds 0, and 120 contrasts or more make it."""
    for r in measured.loc["chbias"].itertuples():
        assert r.control_low < 0 < r.control_high and abs(r.control) < 0.3
