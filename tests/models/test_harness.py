"""Models that another program runs: equal to our own path, in-process and behind a server, and no key anywhere."""

import http.server
import json
import threading

import numpy as np
import pandas as pd
import pytest
import torch
from conftest import PETS

from redditbias_repro.answers.generation import answers, decoding_of
from redditbias_repro.cli import main
from redditbias_repro.metrics.association import measure_association
from redditbias_repro.metrics.fairness import answer_pairs
from redditbias_repro.metrics.language_model import measure_lmb, measure_lmp
from redditbias_repro.metrics.likelihood import measure_likelihood_bias
from redditbias_repro.models.harness import Place, read_name, with_backend
from redditbias_repro.models.loading import check_models, describe_model, load_model, open_model
from redditbias_repro.scoring.likelihoods import nll_at_temperatures, perplexity, sequence_scores, token_scores

KEY = "sk-nobody-may-see-this"
TEXTS = ["the women are nurses", "the men are officers", "they are lazy", "they are lazy", "christians and jews"]
PEOPLE = """
templates = ["I like {plural_noun_phrase}.", "I'm {noun_phrase}."]
nouns = [["neighbour", "neighbours", "neutral"], ["man", "men", "male"], ["woman", "women", "female"]]
[axes]
height = ["short", "tall", "very tall"]
"""


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("REDDITBIAS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.fixture
def here(model_folder):
    return load_model(model_folder)


@pytest.fixture
def there(model_folder):
    return load_model(f"lm-eval:hf:{model_folder}")


class Server(http.server.BaseHTTPRequestHandler):
    """OpenAI's completions: echoes a prompt's tokens with their log-probabilities, or writes on."""

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.seen.append((dict(self.headers), asked))
        if self.server.broken:
            self.send_response(500)
            self.end_headers()
            self.wfile.write(f"no, {self.headers['Authorization']}".encode())
            return
        if "messages" in asked:
            self._chats(asked)
            return
        prompts = asked["prompt"] if isinstance(asked["prompt"][0], list) else [asked["prompt"]]
        choices = [self._echoed(ids) if asked.get("echo") else self._written(ids, asked) for ids in prompts]
        body = json.dumps({"choices": [{**c, "index": i} for i, c in enumerate(choices)]}).encode()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)

    def _chats(self, asked):
        turns = " / ".join(f"{m['role']}: {m['content']}" for m in asked["messages"])
        choice = {"index": 0, "message": {"content": f"You said {turns}", "role": "assistant"}}
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"choices": [choice]}).encode())

    def _echoed(self, ids):
        model, _ = self.server.model
        with torch.inference_mode():
            found = model(torch.tensor([ids])).logits[0].float().log_softmax(-1)
        each = [None, *(float(found[i, t]) for i, t in enumerate(ids[1:])), -1.0]  # and one token that is written
        if not self.server.logprobs:
            return {"text": "", "logprobs": None}
        return {"text": "", "logprobs": {"token_logprobs": each, "top_logprobs": [{"x": 0.0}] * len(each)}}

    def _written(self, ids, asked):
        model, words = self.server.model
        out = model.generate(torch.tensor([ids]), max_new_tokens=asked["max_tokens"], do_sample=False, pad_token_id=0)
        return {"text": words.decode(out[0, len(ids) :], skip_special_tokens=True)}

    def log_message(self, *args):
        pass


@pytest.fixture
def server(here):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
    server.model, server.seen, server.broken, server.logprobs = here, [], False, True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()


@pytest.fixture
def served(server, model_folder):
    """The name of the model behind the server."""
    address = f"http://127.0.0.1:{server.server_address[1]}/v1/completions"
    return f"lm-eval:local-completions:tiny?base_url={address},tokenizer={model_folder},max_retries=1"


@pytest.fixture
def pets(tmp_path):
    (tmp_path / "pets.toml").write_text(PETS)
    return tmp_path / "pets.toml"


# --- equal ---


@pytest.mark.parametrize("place", ["there", "served"])
def test_sentences_are_as_likely_there(place, here, request):
    there = request.getfixturevalue(place)
    model = load_model(there) if place == "served" else there
    np.testing.assert_allclose(perplexity(*model, TEXTS), perplexity(*here, TEXTS), rtol=1e-4)
    contexts = ["", "well, ", "well, ", "no, ", "so "]
    scores, own = (sequence_scores(*m, TEXTS, contexts) for m in (model, here))
    np.testing.assert_allclose(scores["nll"], own["nll"], rtol=1e-4)
    assert (scores["n_tokens"] == own["n_tokens"]).all() and "lm-eval" in scores.attrs["stats"]["why_batches"]


def test_one_sentence_after_two_contexts_of_the_same_tokens(there, here):
    """The same tokens, of which others are scored."""
    texts, contexts = ["they are lazy", " are lazy"], ["", "they"]
    for model in (there, here):
        a, b = sequence_scores(*model, texts, contexts)["nll"]
        assert a == pytest.approx(sequence_scores(*here, texts[:1], contexts[:1])["nll"][0], rel=1e-4)
        assert b == pytest.approx(sequence_scores(*here, texts[1:], contexts[1:])["nll"][0], rel=1e-4)


@pytest.mark.parametrize("place", ["hf", "server"])
def test_measures_are_equal(place, model_folder, pets, tmp_path, request):
    name = f"lm-eval:hf:{model_folder}" if place == "hf" else request.getfixturevalue("served")
    (tmp_path / "people.toml").write_text(PEOPLE)
    for measure, what in (
        (measure_lmb, dict(bias_types=[str(pets)])),
        (measure_association, dict(bias_types=[str(pets)])),
        (measure_likelihood_bias, dict(source=tmp_path / "people.toml")),
    ):
        theirs, ours = (measure(m, **what)[0] for m in (name, str(model_folder)))
        numbers = [k for k, v in ours["values"].items() if isinstance(v, float)]
        assert numbers and theirs["n"] == ours["n"]
        for k in numbers:
            assert theirs["values"][k] == pytest.approx(ours["values"][k], rel=1e-3, abs=1e-4), k


def test_perplexity_as_it_is(there, here, tmp_path):
    (tmp_path / "said.txt").write_text("\n".join(TEXTS))
    (theirs,), (ours,) = (measure_lmp(m, references=tmp_path / "said.txt") for m in (there, here))
    assert theirs["values"]["perplexity"] == pytest.approx(ours["values"]["perplexity"], rel=1e-4)
    assert "temperature" not in theirs["values"] and theirs["provenance"]["model"]["name"].endswith("@hf")


@pytest.mark.parametrize("place", ["there", "served"])
def test_answers_are_the_same_there(place, here, request):
    there = request.getfixturevalue(place)
    model = load_model(there) if place == "served" else there
    asked = ["the women", "they are", "jews and"]
    how = dict(decoding=decoding_of(max_new_tokens=7), turn_end="", progress=False)
    theirs, ours = (answers(*m, asked, **how) for m in (model, here))
    assert theirs["answer"].tolist() == ours["answer"].tolist() and theirs["answer"].str.len().min() > 0
    assert theirs.attrs["decoding"] == ours.attrs["decoding"]


def test_answers_go_on_where_they_stopped(there, tmp_path):
    how = dict(decoding=decoding_of(max_new_tokens=4), turn_end="", progress=False, out=tmp_path / "said", batch_size=1)
    model, tokenizer = there
    plain, calls = model.lm.generate_until, []

    def failing(asked, **kwargs):
        calls.append(len(asked))
        if len(calls) == 2:
            raise ConnectionError(f"Bearer {KEY}")
        return plain(asked, **kwargs)

    model.lm.generate_until = failing
    with pytest.raises(OSError, match="gave no answers") as e:
        answers(model, tokenizer, TEXTS[:3], **how)
    assert KEY not in str(e.value) and e.value.__suppress_context__
    found = answers(model, tokenizer, TEXTS[:3], **how)
    assert len(found) == 3 and calls == [1, 1, 1, 1]


def test_a_server_that_only_chats(server, tmp_path, capsys):
    """Its answers are judged like any; how likely a sentence is it does not say."""
    address = f"http://127.0.0.1:{server.server_address[1]}/v1/chat/completions"
    name = f"lm-eval:local-chat-completions:gpt?base_url={address}"
    model, tokenizer = load_model(name)
    said = answers(model, tokenizer, ["so", "no"], decoding_of(max_new_tokens=9), system="be kind", progress=False)
    assert said["answer"].tolist() == [f"You said system: be kind / user: {t}" for t in ("so", "no")]
    assert said["n_tokens"].tolist() == [8, 8] and said["ended"].all()
    pairs = pd.DataFrame({"text1": ["the women"], "text2": ["the men"]})
    found = answer_pairs(name, pairs, decoding=decoding_of(max_new_tokens=9))
    assert found["response1"].tolist() == ["You said user: the women"] and found.attrs["model"]["name"].startswith(
        "gpt@"
    )
    with pytest.raises(ValueError, match="only chats"):
        perplexity(model, tokenizer, TEXTS)
    with pytest.raises(ValueError, match="only chats"):
        answers(model, tokenizer, ["so"], chat=False)


# --- what records say ---


def test_weights_where_there_are_some(there, here):
    """`hf` holds the model: the same hash; behind a server nothing is known of weights."""
    assert describe_model(there[0])["weights_sha256"] == describe_model(here[0])["weights_sha256"]


def test_no_key_in_a_record(served, server, pets):
    record = measure_lmb(served, [str(pets)])[0]
    about = record["provenance"]["model"]
    assert about["weights_sha256"] is None and len(about["fingerprint"]) == 16
    assert about["name"] == "tiny@local-completions" and about["harness"]["base_url"].startswith("http://127")
    assert KEY not in json.dumps(record) and server.seen[0][0]["Authorization"] == f"Bearer {KEY}"


def test_another_model_behind_the_same_address_is_another(served, server):
    first, again = open_model(served).about, open_model(served).about
    other = load_model(server.model[0].name_or_path)
    with torch.no_grad():
        other[0].transformer.h[0].mlp.c_fc.weight.mul_(3)
    server.model = other
    assert first == again and open_model(served).about["fingerprint"] != first["fingerprint"]


# --- what cannot be ---


@pytest.mark.parametrize(
    "name, said",
    [
        ("lm-eval:hf", "expected lm-eval:CLASS:MODEL"),
        ("lm-eval:nosuch:gpt2", "class of lm-evaluation-harness 'nosuch' is unknown"),
        ("lm-eval:hf:gpt2?batch_size", "'batch_size' is not a setting"),
        (f"lm-eval:local-completions:m?api_key={KEY}", "set it in the environment"),
        (f"lm-eval:local-completions:m?auth_token={KEY}", "set it in the environment"),
        (f"lm-eval:local-completions:m?base_url=http://me:{KEY}@host/v1", "no key in it"),
        (f"lm-eval:local-completions:m?base_url=http://host/v1?key={KEY}", "expected"),
        ("lm-eval:dummy:m", "scores strings, but our measures need tokens"),
    ],
)
def test_names_that_say_nothing(name, said):
    with pytest.raises(ValueError, match=said) as e:
        load_model(name)
    assert KEY not in str(e.value)


def test_a_backend_is_part_of_the_name():
    assert with_backend("m", "lm-eval:vllm", "a=1") == "lm-eval:vllm:m?a=1" and with_backend("m", None) == "m"
    assert read_name("lm-eval:vllm:a/b?c=1,d=2") == Place("vllm", "a/b", {"c": "1", "d": "2"})
    with pytest.raises(ValueError, match="expected lm-eval:CLASS"):
        with_backend("m", "vllm")
    with pytest.raises(ValueError, match="give both"):
        with_backend("m", None, "a=1")
    with pytest.raises(ValueError, match="unknown"):
        check_models("lm-eval:nosuch:gpt2")


def test_what_needs_tokens_or_temperatures(there):
    for ask, more in ((token_scores, {}), (nll_at_temperatures, {"temperatures": [2.0]})):
        with pytest.raises(ValueError, match="sums over texts alone"):
            ask(*there, TEXTS, **more)
    with pytest.raises(ValueError, match="only causal models"):
        load_model(f"lm-eval:hf:{there[0].place.model}", kind="seq2seq")
    with pytest.raises(ValueError, match="speakers"):
        answers(*there, ["so"], speakers=True)


def test_beams_are_not_for_a_server(served, there):
    beams = decoding_of(num_beams=2, max_new_tokens=3)
    with pytest.raises(ValueError, match="num_beams=2"):
        answers(*load_model(served), ["so"], beams, turn_end="")
    assert len(answers(*there, ["so"], beams, turn_end="")) == 1


def test_a_server_that_fails(served, server, capfd):
    model = load_model(served)
    server.broken = True
    with pytest.raises(OSError, match="is the server there") as e:
        perplexity(*model, TEXTS)
    assert KEY not in str(e.value) + "".join(capfd.readouterr())
    server.broken, server.logprobs = False, False
    with pytest.raises(ValueError, match="not every server gives both"):
        perplexity(*model, TEXTS)


def test_what_a_class_raises_holds_no_key(there, capsys):
    """Whatever it says of what it sent, or of what it was told."""
    model, tokenizer = there

    def failing(asked, **kwargs):
        raise RuntimeError(f"sent Authorization: Bearer {KEY}")

    model.lm._loglikelihood_tokens = failing
    with pytest.raises(ValueError, match=r"RuntimeError: sent Authorization: Bearer \$OPENAI_API_KEY") as e:
        perplexity(model, tokenizer, TEXTS)
    assert KEY not in str(e.value) and e.value.__suppress_context__


def test_it_cannot_be_debiased(model_folder, tmp_path, capsys):
    name = f"lm-eval:hf:{model_folder}"
    assert main(["debias", "--model", name, "--bias-type", "race", "--out", str(tmp_path / "out")]) == 2
    assert "it can be measured, but not trained" in capsys.readouterr().err


# --- on a command line ---


def test_from_a_command_line(served, server, model_folder, pets, tmp_path, capsys):
    place = read_name(served)
    args = ",".join(f"{k}={v}" for k, v in place.args.items())
    how = ["--backend", "lm-eval:local-completions", "--backend-args", args]
    out = tmp_path / "found.json"
    assert main(["measure", "--model", "tiny", *how, "--bias-type", str(pets), "--out", str(out)]) == 0
    said = capsys.readouterr()
    assert "tiny@local-completions" in said.out and KEY not in said.out + said.err + out.read_text()
    (tmp_path / "said.txt").write_text("\n".join(TEXTS))
    for which in (how, ["--model", str(model_folder)]):
        model = ["--model", "tiny"] if which is how else []
        assert main(["score", str(tmp_path / "said.txt"), *model, *which]) == 0
    found = capsys.readouterr().out.splitlines()
    theirs, ours = ([line.split(",") for line in found[i : i + 6][1:]] for i in (0, 6))
    np.testing.assert_allclose(np.array(theirs, float), np.array(ours, float), rtol=1e-3)


def test_comparing_there_and_here(model_folder, pets, capsys):
    how = ["--backend", "lm-eval:hf", "--bias-type", str(pets)]
    assert main(["compare", str(model_folder), str(model_folder), *how]) == 0
    assert "equal" in capsys.readouterr().out


def test_responses_to_contexts(there, here):
    pairs = pd.DataFrame({"text1": ["the women"], "text2": ["the men"]})
    how = dict(decoding=decoding_of(max_new_tokens=5), turn_end="")
    theirs, ours = (answer_pairs(m, pairs, **how) for m in (there, here))
    assert theirs[["response1", "response2"]].equals(ours[["response1", "response2"]])
