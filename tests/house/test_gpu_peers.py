"""The script for vLLM and SGLang: its arguments, and what it makes of their answers, which are written here by hand."""

import json
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from test_bench import loaded


@pytest.fixture(scope="module")
def peers():
    return loaded("gpu_peers")


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_without_the_engine(peers, engine, monkeypatch):
    monkeypatch.setitem(sys.modules, engine, None)
    with pytest.raises(SystemExit, match=f"pip install {engine}"):
        peers.main([engine, "--model", "gpt2"])


def test_arguments(peers, capsys):
    for call, said in (
        (["tgi", "--model", "m"], "invalid choice"),
        (["vllm"], "--model"),
        (["vllm", "--model", "m", "--out", "x.csv"], "ends in .json"),
        (["vllm", "--model", "m", "--dtype", "int8"], "invalid choice"),
    ):
        with pytest.raises(SystemExit):
            peers.main(call)
        assert said in capsys.readouterr().err


def test_sentences(peers, tmp_path):
    (tmp_path / "mine.txt").write_text("one two\n\nthree four\n")
    assert peers.sentences(str(tmp_path / "mine.txt")) == ["one two", "three four"]
    with pytest.raises(SystemExit, match="expected a file"):
        peers.sentences("prompts-many")


def test_first_tokens_are_not_scored(peers):
    ids, logprobs = [5, 7, 9], [-1.0, -3.0]
    of_vllm = [None, *({i: SimpleNamespace(logprob=x)} for i, x in zip(ids[1:], logprobs))]
    of_sglang = [(None, 5, None), (-1.0, 7, None), (-3.0, 9, None)]
    assert np.isclose(peers.vllm_nll(of_vllm, ids), 2) and np.isclose(peers.sglang_nll(of_sglang, ids), 2)


def test_a_run_of_vllm(peers, monkeypatch, tmp_path, model_folder, capsys):
    """With an engine that answers in vLLM's format and says that every token is as likely as another of four."""

    class Engine:
        def __init__(self, model, dtype, enable_prefix_caching):
            assert enable_prefix_caching is False

        def generate(self, prompts, asked, use_tqdm):
            assert asked.prompt_logprobs == 0 and asked.max_tokens == 1
            one = lambda i: {i: SimpleNamespace(logprob=np.log(1 / 4))}
            ids = [p["prompt_token_ids"] for p in prompts]
            return [SimpleNamespace(prompt_logprobs=[None, *map(one, s[1:])], num_cached_tokens=0) for s in ids]

    fake = SimpleNamespace(LLM=Engine, SamplingParams=SimpleNamespace)
    monkeypatch.setitem(sys.modules, "vllm", fake)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    (tmp_path / "mine.txt").write_text("the women are nurses\nthey are lazy\n")
    out = tmp_path / "out.json"
    peers.main(["vllm", "--model", str(model_folder), "--input", str(tmp_path / "mine.txt"), "--out", str(out)])
    made = json.loads(out.read_text())
    assert made["n"] == 2 and np.allclose(np.exp(made["means"]), 4) and made["tokens_from_cache"] == 0
