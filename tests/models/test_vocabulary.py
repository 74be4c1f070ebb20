"""CDial-GPT's tokenizer and input, encoder–decoder models, unknown tokens."""

import json
import shutil

import numpy as np
import pytest
import torch
from conftest import CDIAL_CONFIG, released
from transformers import (
    AutoModelForSeq2SeqLM,
    BartConfig,
    BertTokenizer,
    OpenAIGPTConfig,
    OpenAIGPTLMHeadModel,
    T5Config,
)

from redditbias_repro.cli import main
from redditbias_repro.data.corpora.chbias import CDIAL_VOCABULARY, cdial_tokenizer
from redditbias_repro.data.pairs import load_pairs
from redditbias_repro.data.registry import fetch
from redditbias_repro.metrics.language_model import measure_lmb
from redditbias_repro.models.loading import load_model
from redditbias_repro.models.speakers import SPEAKERS, encode_turns, has_speakers, speaker_types, speaking
from redditbias_repro.records import record_path
from redditbias_repro.scoring.likelihoods import perplexity, sequence_scores, token_scores
from redditbias_repro.scoring.texts import unknown_words
from redditbias_repro.show.tables import lmb_table
from redditbias_repro.stats.packing import unpack_pairs

TEXTS = ["今天天气很好", "我们去公园吧，好吗？", "在"]


def test_the_released_configuration():
    config, _ = released(CDIAL_CONFIG, CDIAL_VOCABULARY)
    assert json.loads(config.read_text(encoding="utf-8"))["vocab_size"] == 13088
    look_at_words(cdial_tokenizer(), 13088)


def test_a_configuration_of_its_kind(cdial_model):
    model, tokenizer = cdial_model
    assert isinstance(tokenizer, BertTokenizer) and model.config.pad_token_id == 1
    look_at_words(tokenizer, model.config.vocab_size)


def look_at_words(tokenizer, n):
    special = [tokenizer.cls_token_id, tokenizer.pad_token_id, tokenizer.sep_token_id, tokenizer.unk_token_id]
    assert special == [0, 1, 2, 3] and tokenizer.convert_tokens_to_ids(list(SPEAKERS)) == [n - 2, n - 1]
    assert tokenizer.vocab_size == n and has_speakers(tokenizer)


def test_one_token_a_han_character_and_what_is_unknown(cdial_model):
    tokenizer = cdial_model[1]
    assert tokenizer.tokenize("我们去公园") == list("我们去公园")
    assert unknown_words(tokenizer, ["他是gay吗", "txl和GAY", "你好"]) == {"gay": 1, "txl": 1, "GAY": 1}
    assert unknown_words(tokenizer, []) == {} and tokenizer.decode(
        tokenizer("你好", add_special_tokens=False)["input_ids"]
    )


def test_the_marks_cannot_be_written(cdial_model):
    "A post that holds the text of a mark does not become one"
    ids = cdial_model[1]("[speaker1]你好", add_special_tokens=False)["input_ids"]
    assert not set(cdial_model[1].convert_tokens_to_ids(list(SPEAKERS))) & set(ids)


def test_the_default_scores_bare_sentences(cdial_model):
    model, tokenizer = cdial_model
    scores = sequence_scores(model, tokenizer, TEXTS[:2])
    ids = torch.tensor([tokenizer(TEXTS[0], add_special_tokens=False)["input_ids"]])
    with torch.no_grad():
        loss = model(ids, labels=ids).loss.item()
    assert scores.n_tokens.tolist() == [5, 9] and scores.attrs["stats"]["path"] == "tree"
    assert perplexity(model, tokenizer, TEXTS[:1])[0] == pytest.approx(np.exp(loss), rel=1e-5)


def test_speakers_score_the_last_turn_and_its_end(cdial_model):
    """By hand: [CLS][speaker1]u1[speaker2]u2[SEP] with the types of CDial-GPT's code; u2 and [SEP] are scored."""
    model, tokenizer = cdial_model
    code = lambda t: tokenizer(t, add_special_tokens=False)["input_ids"]
    u1, u2 = map(code, TEXTS[:2])
    one, two = tokenizer.convert_tokens_to_ids(list(SPEAKERS))
    ids = torch.tensor([[0, one, *u1, two, *u2, 2]])
    types = torch.tensor([[0, *[one] * (1 + len(u1)), *[two] * (2 + len(u2))]])
    assert torch.equal(speaker_types(ids, tokenizer), types)
    with torch.no_grad():
        logp = model(ids, token_type_ids=types).logits.log_softmax(-1)[0]
    n = len(u2) + 1
    by_hand = -sum(logp[k - 1, ids[0, k]].item() for k in range(ids.shape[1] - n, ids.shape[1]))
    found = sequence_scores(model, tokenizer, [TEXTS[1], TEXTS[2]], [TEXTS[0], ""], speakers=True)
    assert found.n_tokens.tolist() == [n, 2] and found.nll[0] == pytest.approx(by_hand, rel=1e-4)
    plain = sequence_scores(model, tokenizer, [TEXTS[1]], [TEXTS[0]])
    assert abs(plain.nll[0] - found.nll[0]) > 0.01 and not model.base_model._forward_pre_hooks


def test_speakers_in_batches_are_those_alone(cdial_model):
    model, tokenizer = cdial_model
    contexts = ["你好\n在吗", "", "好"]
    together = sequence_scores(model, tokenizer, TEXTS, contexts, speakers=True)
    alone = [sequence_scores(model, tokenizer, [t], [c], speakers=True).nll[0] for t, c in zip(TEXTS, contexts)]
    assert np.allclose(together.nll, alone, rtol=1e-4)


def test_scores_with_speakers_resume_and_are_kept_apart(cdial_model, tmp_path):
    model, tokenizer = cdial_model
    first = sequence_scores(model, tokenizer, TEXTS, speakers=True, out=tmp_path)
    assert sequence_scores(model, tokenizer, TEXTS, speakers=True, out=tmp_path).equals(first)
    with pytest.raises(ValueError, match="speakers"):
        sequence_scores(model, tokenizer, TEXTS, out=tmp_path, on_short="nan")


@pytest.mark.parametrize("wrong", [{"path": "tree"}, {"add_special_tokens": True}])
def test_what_does_not_go_with_speakers(cdial_model, wrong):
    with pytest.raises(ValueError, match="speakers=True does not go with"):
        sequence_scores(*cdial_model, TEXTS, speakers=True, **wrong)


def test_speakers_need_their_marks(random_model, tokenizer):
    with pytest.raises(ValueError, match="needs a tokenizer with .*speaker1"):
        sequence_scores(random_model, tokenizer, TEXTS, speakers=True)
    with pytest.raises(ValueError, match="needs a tokenizer with"), speaking(random_model, tokenizer):
        pass


def test_turns_by_hand(cdial_model):
    tokenizer = cdial_model[1]
    code = lambda t: tokenizer(t, add_special_tokens=False)["input_ids"]
    one, two = tokenizer.convert_tokens_to_ids(list(SPEAKERS))
    ids, first = encode_turns(tokenizer, ["你好", "在吗"])
    assert ids == [0, one, *code("你好"), two, *code("在吗"), one] and first == len(ids)
    assert encode_turns(tokenizer, []) == ([0, one], 2)
    assert encode_turns(tokenizer, ["你好", ""], answer=False) == ([0, one, *code("你好"), two, 2], 5)


@pytest.mark.parametrize("named", [True, False])
def test_the_class_is_what_the_configuration_says(made_up, cdial_folder, tmp_path, named):
    """CDial-GPT (without the 2) is OpenAI's GPT; a checkpoint of 2020 may name its class and no type."""
    config = OpenAIGPTConfig(**{**json.loads(fetch(CDIAL_CONFIG).read_text()), "n_layer": 1, "n_embd": 48, "n_head": 2})
    OpenAIGPTLMHeadModel(config).save_pretrained(tmp_path)
    shutil.copy(cdial_folder / "vocab.txt", tmp_path)
    if not named:
        told = json.loads((tmp_path / "config.json").read_text())
        del told["model_type"]
        (tmp_path / "config.json").write_text(json.dumps(told))
    model, tokenizer = load_model(tmp_path)
    assert isinstance(model, OpenAIGPTLMHeadModel) and isinstance(tokenizer, BertTokenizer)
    bare = sequence_scores(model, tokenizer, TEXTS[:2])
    assert np.isfinite(bare.nll).all()
    assert np.isfinite(sequence_scores(model, tokenizer, TEXTS, speakers=True).nll).all()


def test_a_configuration_that_names_nothing(made_up, cdial_folder, tmp_path):
    shutil.copytree(cdial_folder, tmp_path / "m")
    (tmp_path / "m" / "config.json").write_bytes(fetch(CDIAL_CONFIG).read_bytes())
    with pytest.raises(ValueError, match="model_type"):
        load_model(tmp_path / "m")


def test_a_list_of_words_of_another_model(cdial_folder, tmp_path):
    shutil.copytree(cdial_folder, tmp_path / "m")
    more = "\n".join(f"w{i}" for i in range(9))
    (tmp_path / "m" / "vocab.txt").write_text((cdial_folder / "vocab.txt").read_text(encoding="utf-8") + more)
    with pytest.raises(ValueError, match="they are of different models"):
        load_model(tmp_path / "m")


# --- encoder–decoder models ---


def t5(v):
    return T5Config(vocab_size=v, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, decoder_start_token_id=1)


def bart(v):
    sizes = dict(encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4)
    sizes |= dict(encoder_ffn_dim=64, decoder_ffn_dim=64, max_position_embeddings=256)
    return BartConfig(vocab_size=v, d_model=32, decoder_start_token_id=1, **sizes)


@pytest.fixture(scope="session", params=[t5, bart])
def seq2seq(request, cdial_folder):
    """Small random encoder–decoder models over CDial-GPT's characters, with an end."""
    torch.manual_seed(0)
    tokenizer = BertTokenizer.from_pretrained(cdial_folder)
    model = AutoModelForSeq2SeqLM.from_config(request.param(tokenizer.vocab_size)).eval()
    model.config.pad_token_id = 1
    return model, tokenizer


def by_hand(model, source, target):
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([source]), decoder_input_ids=torch.tensor([[1, *target[:-1]]])).logits[0]
    return -sum(logits[k].log_softmax(-1)[i].item() for k, i in enumerate(target))


def test_source_is_the_context_and_target_is_scored(seq2seq):
    model, tokenizer = seq2seq
    (source,), (target,) = tokenizer(["你好"])["input_ids"], tokenizer([TEXTS[0]])["input_ids"]
    found = sequence_scores(model, tokenizer, [TEXTS[0]], ["你好"])
    assert found.nll[0] == pytest.approx(by_hand(model, source, target), rel=1e-4)
    assert found.n_tokens[0] == len(target), "every token of the target, the first one and its end too"


def test_the_empty_source_is_its_special_tokens(seq2seq):
    model, tokenizer = seq2seq
    found = sequence_scores(model, tokenizer, TEXTS, source="")
    (target,) = tokenizer([TEXTS[1]])["input_ids"]
    assert found.nll[1] == pytest.approx(by_hand(model, [0, 2], target), rel=1e-4)
    bare = perplexity(model, tokenizer, TEXTS[:1], source="")  # without the target's special tokens
    code = tokenizer(TEXTS[0], add_special_tokens=False)["input_ids"]
    assert bare[0] == pytest.approx(np.exp(by_hand(model, [0, 2], code) / len(code)), rel=1e-4)
    assert sequence_scores(model, tokenizer, TEXTS, source="你好").nll[0] != found.nll[0]


def test_contexts_win_over_the_source(seq2seq):
    with_context = sequence_scores(*seq2seq, TEXTS[:1], ["你好"])
    assert sequence_scores(*seq2seq, TEXTS[:1], ["你好"], source="").nll[0] == with_context.nll[0]


def test_a_sentence_without_a_source_says_what_to_do(seq2seq):
    with pytest.raises(ValueError, match="pass the sources as contexts, or pass source=''"):
        sequence_scores(*seq2seq, TEXTS)
    with pytest.raises(ValueError, match="speakers=True is for causal models"):
        sequence_scores(*seq2seq, TEXTS, [""] * 3, speakers=True)


def test_a_tokenizer_without_special_tokens_has_no_empty_source(seq2seq, tokenizer):
    with pytest.raises(ValueError, match="an encoder needs one at least"):
        sequence_scores(seq2seq[0], tokenizer, ["they are lazy"], source="")


def test_bias_of_an_encoder_decoder(seq2seq, made_up, tmp_path, capsys):
    """Pairs as targets after an empty source, or after the same words; by the function and by the command."""
    seq2seq[0].name_or_path, out = "tiny", tmp_path / "age.json"
    (empty,) = measure_lmb(seq2seq, ["chbias/age"], outliers="all")
    assert empty["params"] == {"outliers": "all", "source": ""} and record_path(empty) != record_path(
        {**empty, "params": {}}
    )
    pairs, found = load_pairs("chbias/age", "test"), unpack_pairs(empty["values"]["pairs"])
    by_hand = sequence_scores(*seq2seq, list(pairs.text1[:3]), source="")
    assert found.nll1[:3].to_numpy() == pytest.approx(by_hand.nll.to_numpy(), rel=1e-5)
    assert found.tokens1[:3].tolist() == by_hand.n_tokens.tolist(), "with the end of the target"
    for part in seq2seq:
        part.save_pretrained(tmp_path / "saved")
    command = ["measure", "--model", str(tmp_path / "saved"), "--bias-type", "chbias/age", "--kind", "seq2seq"]
    assert main([*command, "--out", str(out)]) == 0 and " (empty source)" in capsys.readouterr().out
    assert json.loads(out.read_text())[0]["values"]["t"] == pytest.approx(empty["values"]["t"])
    assert main([*command, "--source", "你好", "--out", str(out)]) == 0
    told, associated = json.loads(out.read_text())
    assert associated["metric"] == "association" and associated["params"]["source"] == "你好"
    assert told["params"]["source"] == "你好" and told["values"]["t"] != empty["values"]["t"]
    names = [f"{told['model']} (source '你好')", f"{empty['model']} (empty source)"]
    assert sorted(lmb_table([empty, told], paper="chbias").model) == sorted(names)


def test_a_source_needs_an_encoder(model_folder, capsys):
    with pytest.raises(ValueError, match="only an encoder reads a source"):
        measure_lmb(str(model_folder), ["race"], "queries", source="")
    asked = ["measure", "--model", str(model_folder), "--bias-type", "race", "--corpus", "queries"]
    assert main([*asked, "--source", "hello"]) == 2 and "give --kind seq2seq" in capsys.readouterr().err
    assert main(["measure", "--paper", "holisticbias", "--kind", "seq2seq"]) == 2
    assert "--kind is for pairs" in capsys.readouterr().err


def test_spans_with_a_source(seq2seq):
    table = token_scores(*seq2seq, [TEXTS[0]], source="")
    assert np.isfinite(table.logprob).all()
    assert [TEXTS[0][a:b] for a, b in zip(table.start, table.end)][1:-1] == list(TEXTS[0])
