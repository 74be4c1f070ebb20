"""LM perplexity in another language: references from KdConv or a file, the temperature fitted on others."""

import json

import numpy as np
import pytest
import torch
from transformers import AutoModelForSeq2SeqLM, T5Config

from redditbias_repro.cli import main
from redditbias_repro.data.corpora.kdconv import load_calibration as calibration_turns
from redditbias_repro.data.corpora.kdconv import load_references as kdconv_turns
from redditbias_repro.data.pairs import load_calibration, load_references
from redditbias_repro.metrics.language_model import measure_lmp
from redditbias_repro.records import record_path
from redditbias_repro.scoring.likelihoods import sequence_scores
from redditbias_repro.show.tables import lmp_table
from redditbias_repro.stats.packing import unpack_sentences

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*knows little of such texts"
)  # a random model is more likely, the flatter


def test_turns_of_dialogues(made_up):
    tested, others = kdconv_turns(), calibration_turns()
    assert tested.text.is_unique and others.text.is_unique and not tested.text.eq("").any()
    assert load_references(50, 1, "kdconv").equals(kdconv_turns(50, 1)) and load_calibration("redditbias") is None
    dev, test = (set(t.attrs["corpus"]["files"]) for t in (others, tested))
    assert all("dev.json" in f for f in dev) and all("test.json" in f for f in test)
    with pytest.raises(ValueError, match="n is 99999: expected 1 to"):
        load_references(99_999, corpus="kdconv")


def test_perplexity_of_chinese(made_up, cdial_model, tmp_path, monkeypatch):
    """By hand: the drawn turns, and none of them among those that the temperature was fitted on."""
    monkeypatch.setenv("REDDITBIAS_CACHE", str(tmp_path / "cache"))
    model, tokenizer = cdial_model
    drawn, others = kdconv_turns(8, 3), calibration_turns().head(40)
    monkeypatch.setattr("redditbias_repro.metrics.language_model.load_calibration", lambda corpus: others)
    (record,) = measure_lmp(cdial_model, 8, 3, paper="chbias", references="kdconv")
    assert (record["corpus"], record["paper"], record["n"]) == ("kdconv", "chbias", 8)
    assert record["values"]["n_calibration"] == 8 and record["params"] == {"sentences": 8}
    files = record["provenance"]["corpus"]["files"]
    assert sum("dev.json" in f for f in files) == sum("test.json" in f for f in files) == 3
    scores = sequence_scores(model, tokenizer, list(drawn.text), on_short="nan")
    assert record["values"]["perplexity"] == pytest.approx(np.exp(scores.nll.sum() / scores.n_tokens.sum()), rel=1e-4)
    (special,) = measure_lmp(cdial_model, 8, 3, paper="chbias", references="kdconv", add_special_tokens=True)
    ends = (unpack_sentences(r["values"]["scores"]).tokens for r in (special, record))
    assert np.subtract(*ends).tolist() == [2] * 8, "[SEP], and the first token too"
    assert record_path(special).name != record_path(record).name
    assert sorted("special" in name for name in lmp_table([record, special], paper="chbias").model) == [False, True]


def test_a_file_by_the_command(model_folder, tmp_path, capsys):
    file, out = tmp_path / "mine.txt", tmp_path / "lmp.json"
    file.write_text("\n".join(f"the cat number {i} is old and sleeps" for i in range(12)), encoding="utf-8")
    asked = ["perplexity", "--model", str(model_folder), "--references", str(file)]
    assert main([*asked, "--limit", "5", "--paper", "chbias", "--out", str(out)]) == 0
    (record,) = json.loads(out.read_text(encoding="utf-8"))
    assert record["corpus"] == "mine" and record["paper"] == "chbias" and len(record["provenance"]["corpus"]["sha256"])
    assert record["values"]["n_calibration"] == 5 and "perplexity_calibrated" in capsys.readouterr().out
    assert main(asked) == 0, "all of them, each half at the temperature of the other"


@pytest.mark.parametrize(
    "content,says",
    [
        ("\n\n", "n is 2: expected 1 to 0"),
        ("one line\n", "expected 1 to 1"),
        ("你好".encode("gbk"), "not UTF-8 text"),
    ],
)
def test_bad_files(model_folder, tmp_path, capsys, content, says):
    file = tmp_path / "bad.txt"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    asked = ["perplexity", "--model", str(model_folder), "--references", str(file), "--limit", "2"]
    assert main(asked) == 2 and says in capsys.readouterr().err


def test_other_bad_input(model_folder, cdial_model, tmp_path, capsys):
    assert main(["perplexity", "--model", str(model_folder), "--references", "nonsense"]) == 2
    assert "are not a file, nor one of kdconv, redditbias" in capsys.readouterr().err
    (file := tmp_path / "one.txt").write_text("only one sentence\n")
    assert main(["perplexity", "--model", str(model_folder), "--references", str(file)]) == 2
    assert "fitted on others than are tested" in capsys.readouterr().err
    assert main(["perplexity", "--out", str(tmp_path / "x.txt")]) == 2 and ".csv (table)" in capsys.readouterr().err
    file.write_text("one sentence\nanother sentence\n")
    sizes = dict(d_model=32, d_kv=8, d_ff=32, num_layers=1, num_heads=4, decoder_start_token_id=0)
    torch.manual_seed(0)
    net = AutoModelForSeq2SeqLM.from_config(T5Config(vocab_size=13088, **sizes))
    with pytest.raises(ValueError, match="temperatures are for causal ones"):
        measure_lmp((net, cdial_model[1]), references=file)
