"""Models of other kinds: in memory, adapters, quantised; LoRA in training, and its logs."""

import json
import sys

import pytest
import torch
from conftest import CONFIGS, small_random

from redditbias_repro.cli import main
from redditbias_repro.debias.training import debias
from redditbias_repro.metrics.language_model import measure_lmb
from redditbias_repro.metrics.likelihood import measure_likelihood_bias
from redditbias_repro.models.loading import describe_model, hash_weights, load_model, open_model
from redditbias_repro.records import new_record
from redditbias_repro.specs import load_spec

SPEC = load_spec("redditbias/race")
TEXTS = SPEC.queries()[:8]
HOW = dict(epochs=1, batch_size=4, disable_tqdm=True)


def test_a_model_in_memory(tokenizer):
    """Loaded from nowhere, it is known by its class and weights, and measured as any other."""
    net = small_random(CONFIGS["llama"](len(tokenizer)))
    about = describe_model(net)
    assert about["name"] == f"LlamaForCausalLM@{hash_weights(net)[:8]}" and about["origin"] == "in memory"
    (record,) = measure_lmb((net, tokenizer), ["race"], "queries", outliers="all")
    assert record["model"] == about["name"] and record["provenance"]["model"] == about
    (prompts,) = measure_likelihood_bias((net, tokenizer), "paper", "nonce", rounds=1)
    assert prompts["model"] == about["name"]


@pytest.fixture(scope="module")
def adapter(model_folder, tmp_path_factory):
    """A LoRA run on the tiny model, and the model as it was left in memory."""
    net, words = load_model(model_folder)
    folder = tmp_path_factory.mktemp("lora") / "tiny-hd"
    logs = folder.with_name("logs")
    run = debias(net, words, SPEC, TEXTS, "HD", folder, lora_rank=2, learning_rate=1e-2, tensorboard=logs, **HOW)
    return run, net, logs


def test_lora_keeps_an_adapter_that_is_merged_on_load(adapter, model_folder):
    run, net, _ = adapter
    kept = {p.name for p in run.folder.iterdir()}
    assert {"adapter_config.json", "adapter_model.safetensors", "debias.json", "README.md"} <= kept
    assert not {"model.safetensors", "training_args.bin"} & kept
    again, words = load_model(run.folder)
    base = load_model(model_folder)[0]
    assert type(again) is type(base) and hash_weights(again) == hash_weights(net) != hash_weights(base)
    assert not any("lora" in name for name, _ in net.named_parameters())  # trained in place, as a plain model
    moved = {n for (n, a), (_, b) in zip(again.named_parameters(), base.named_parameters()) if not torch.equal(a, b)}
    assert moved and all(".h." in n for n in moved)  # neither embeddings nor the output layer
    about = describe_model(again)
    assert about["debiased"] == run.settings and about["debiased"]["lora_rank"] == 2
    record = new_record("lmb", about, {"name": "queries"}, 3, {}, bias_type="race")
    assert record["method"] == "HD-LoRA2" and record["model"] == run.settings["base_model"]
    assert (
        debias(base, words, SPEC, TEXTS, "HD", run.folder, lora_rank=2, learning_rate=1e-2, **HOW).folder == run.folder
    )


def test_the_base_must_be_the_one_that_was_trained_on(adapter, tokenizer, model_folder, tmp_path):
    run, _, _ = adapter
    told = json.loads((run.folder / "adapter_config.json").read_text())
    assert told["base_model_name_or_path"] == str(model_folder.resolve())
    copied = tmp_path / "copied"
    copied.mkdir()
    for path in run.folder.iterdir():
        (copied / path.name).write_bytes(path.read_bytes())

    def point_to(base):
        (copied / "adapter_config.json").write_text(json.dumps({**told, "base_model_name_or_path": base}))

    other = tmp_path / "other"
    torch.manual_seed(1)
    type(load_model(model_folder)[0])(CONFIGS["gpt2"](len(tokenizer))).save_pretrained(other)
    tokenizer.save_pretrained(other)
    for base, says in (
        (str(other), "is not what the adapter was trained on"),
        (str(tmp_path / "gone"), "is an adapter of .* which is not available"),
        (None, "names no base"),
    ):
        point_to(base)
        with pytest.raises(ValueError, match=says):
            load_model(copied)


def test_what_lora_cannot_train(model_folder, tokenizer, tmp_path):
    net, words = load_model(model_folder)
    with pytest.raises(ValueError, match="draws input embeddings together"):
        debias(net, words, SPEC, TEXTS, "WER", tmp_path / "a", lora_rank=2, **HOW)
    with pytest.raises(ValueError, match="expected a positive whole number"):
        debias(net, words, SPEC, TEXTS, "HD", tmp_path / "a", lora_rank=0, **HOW)
    with pytest.raises(ValueError, match="lora_rank is 100000: expected at most [0-9]+, the smallest dimension"):
        debias(net, words, SPEC, TEXTS, "HD", tmp_path / "a", lora_rank=100_000, **HOW)
    nowhere = small_random(CONFIGS["gpt2"](len(tokenizer)))
    with pytest.raises(ValueError, match="loaded from nowhere"):
        debias(nowhere, words, SPEC, TEXTS, "HD", tmp_path / "a", lora_rank=2, **HOW)
    assert not list(tmp_path.iterdir())


def test_what_is_not_installed_is_said(adapter, model_folder, monkeypatch, tmp_path, capsys):
    run, _, _ = adapter
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(ValueError, match="pip install peft"):
        load_model(run.folder)
    texts = tmp_path / "t.txt"
    texts.write_text("\n".join(TEXTS))
    command = ["debias", "--model", str(model_folder), "--bias-type", "race", "--texts", str(texts)]
    assert main([*command, "--out", str(tmp_path / "a"), "--lora-rank", "2"]) == 2
    assert "pip install peft" in capsys.readouterr().err
    monkeypatch.setattr("transformers.integrations.integration_utils.is_tensorboard_available", lambda: False)
    assert main([*command, "--out", str(tmp_path / "a"), "--tensorboard", str(tmp_path / "logs")]) == 2
    assert "pip install tensorboard" in capsys.readouterr().err and not (tmp_path / "a").exists()


def test_logs_for_tensorboard_outlast_the_run(adapter):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run, _, logs = adapter
    read = EventAccumulator(str(logs)).Reload()
    assert {"train/loss", "train/lm_loss", "train/debias_loss"} <= set(read.Tags()["scalars"])
    assert [e.step for e in read.Scalars("train/loss")] == run.history["step"].tolist()
    assert "tensorboard" not in run.settings


def test_a_quantised_checkpoint_names_the_library_that_it_needs(model_folder, tmp_path):
    """Through `from_pretrained`, which reads the configuration."""
    folder = tmp_path / "quantised"
    folder.mkdir()
    for path in model_folder.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    config = json.loads((folder / "config.json").read_text())
    how = {"quant_method": "bitsandbytes", "load_in_8bit": True, "_load_in_8bit": True}
    (folder / "config.json").write_text(json.dumps({**config, "quantization_config": how}))
    with pytest.raises(ValueError, match="(?i)needs a library that is not installed: .*bitsandbytes"):
        load_model(folder)


class Halves(torch.Tensor):
    """A weight of two parts, as torchao holds quantised ones."""

    @staticmethod
    def __new__(cls, whole, scale):
        return torch.Tensor._make_wrapper_subclass(cls, whole.shape, dtype=torch.float32)

    def __init__(self, whole, scale):
        self.whole, self.scale = whole, scale

    def __tensor_flatten__(self):
        return ["whole", "scale"], None

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.detach.default:
            return cls(args[0].whole, args[0].scale)
        raise NotImplementedError(func)


def test_the_hash_holds_all_parts_of_a_quantised_weight():
    def made(scale):
        net = torch.nn.Module()
        net.weight = torch.nn.Parameter(Halves(torch.ones(2, 2, dtype=torch.int8), torch.tensor(scale)), False)
        return hash_weights(net)

    assert made(1.0) == made(1.0) != made(2.0)


def test_a_quantised_model_is_not_trained(model_folder, tmp_path):
    net, words = load_model(model_folder)
    net.is_quantized = True
    with pytest.raises(ValueError, match="is quantised, and these weights cannot be trained"):
        debias(net, words, SPEC, TEXTS, "HD", tmp_path / "a", **HOW)


def test_what_is_open_stays_open(model_folder):
    opened = open_model(model_folder)
    assert open_model(opened) is opened
