"""How fast vLLM or SGLang give the log-probabilities of sentences, on a GPU: for readers who have them installed.

    pip install vllm          # or sglang; in an environment of its own
    python bench/gpu_peers.py vllm --model MODEL --input prompts-10000 --out vllm.json
    python bench/gpu_peers.py sglang --model MODEL --input prompts-10000 --prefix-cache --out sglang.json

The same sentences as `make bench`, as token ids, the first token not scored. This project has not run it: what it
writes is shown nowhere as a measurement of ours. docs/scoring.md says what is known of prefix caches in both.
"""

import argparse
import importlib
import json
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

ENGINES = ("vllm", "sglang")


def vllm_run(model, ids, dtype, prefix_cache):
    """Mean negative log likelihoods of the tokens after the first, and how many tokens came from the cache."""
    from vllm import LLM, SamplingParams

    engine = LLM(model=model, dtype=dtype, enable_prefix_caching=prefix_cache)
    asked = SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=0, detokenize=False)
    prompts = [{"prompt_token_ids": list(sequence)} for sequence in ids]
    engine.generate(prompts[:8], asked, use_tqdm=False)  # it is warmed up
    start = time.perf_counter()
    found = engine.generate(prompts, asked, use_tqdm=False)
    seconds = time.perf_counter() - start
    return [vllm_nll(f.prompt_logprobs, s) for f, s in zip(found, ids)], seconds, cached(found, "num_cached_tokens")


def vllm_nll(logprobs, ids):
    """Of a prompt's list: None for the first token, then by token id what was asked for."""
    return -sum(logprobs[i][ids[i]].logprob for i in range(1, len(ids))) / (len(ids) - 1)


def sglang_run(model, ids, dtype, prefix_cache):
    """As `vllm_run`."""
    import sglang

    engine = sglang.Engine(model_path=model, dtype=dtype, disable_radix_cache=not prefix_cache)
    how = dict(sampling_params={"temperature": 0, "max_new_tokens": 1}, return_logprob=True, logprob_start_len=0)
    ids = [list(sequence) for sequence in ids]
    engine.generate(input_ids=ids[:8], **how)
    start = time.perf_counter()
    found = engine.generate(input_ids=ids, **how)
    seconds = time.perf_counter() - start
    engine.shutdown()
    means = [sglang_nll(f["meta_info"]["input_token_logprobs"], s) for f, s in zip(found, ids)]
    return means, seconds, sum(f["meta_info"].get("cached_tokens", 0) for f in found)


def sglang_nll(logprobs, ids):
    """Of a prompt's list of (log-probability, token id, text), the first None."""
    return -sum(logprob for logprob, *_ in logprobs[1 : len(ids)]) / (len(ids) - 1)


def cached(outputs, name):
    return sum(getattr(o, name, None) or 0 for o in outputs)


def sentences(source):
    """Of an input of `make bench` by name, or the lines of a file."""
    if Path(source).is_file():
        return [line for line in Path(source).read_text(encoding="utf-8").splitlines() if line.strip()]
    kind, _, n = source.partition("-")
    if source not in ("religion1", "redditbias") and not (kind in ("prompts", "scattered") and n.isdigit()):
        sys.exit(f"--input {source}: expected a file, religion1, redditbias, prompts-N or scattered-N")
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    from scoring import sentences as of_bench

    return of_bench(source)


def check_installed(engine):
    """Ends with what to install, where the engine or a GPU is missing."""
    try:
        importlib.import_module(engine)
    except ImportError as e:
        sys.exit(f"{engine} cannot be imported ({e}): pip install {engine}, in an environment of its own, on a GPU")
    import torch

    if not torch.cuda.is_available():
        sys.exit(f"{engine} is installed, and there is no GPU that torch can use")


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine", choices=ENGINES)
    parser.add_argument("--model", required=True, help="name on the hub, or a folder")
    parser.add_argument("--input", default="prompts-1000", help="as in `make bench`, or a text file (%(default)s)")
    parser.add_argument("--dtype", default="bfloat16", choices=["float32", "bfloat16", "float16"])
    parser.add_argument("--prefix-cache", action="store_true", help="let the engine keep prefixes")
    parser.add_argument("--out", type=Path, help="a .json with seconds, sentences a second and each mean")
    given = parser.parse_args(argv)
    if given.out and given.out.suffix != ".json":
        parser.error(f"--out {given.out}: expected a name that ends in .json")
    check_installed(given.engine)
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(given.model)
    ids = [s for s in tokenizer(sentences(given.input), add_special_tokens=False)["input_ids"] if len(s) > 1]
    run = {"vllm": vllm_run, "sglang": sglang_run}[given.engine]
    means, seconds, from_cache = run(given.model, ids, given.dtype, given.prefix_cache)
    about = {"engine": given.engine, "version": installed(given.engine), "model": given.model, "dtype": given.dtype}
    about |= {"input": given.input, "prefix_cache": given.prefix_cache, "n": len(ids), "seconds": round(seconds, 3)}
    about |= {"sentences_per_second": round(len(ids) / seconds, 1), "tokens": sum(map(len, ids))}
    about |= {"tokens_from_cache": from_cache}
    print(json.dumps(about, indent=1))
    if given.out:
        given.out.write_text(json.dumps({**about, "means": means}) + "\n", encoding="utf-8")


def installed(package):
    try:
        return version(package)
    except PackageNotFoundError:
        return None


if __name__ == "__main__":
    main()
