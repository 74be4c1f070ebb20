"""How a.eval and b.eval were made: Inspect (inspect_ai 0.3.285) on made-up sums, answered by its mock model.

python make.py, where inspect_ai is installed; then logs/a/*.eval → a.eval, logs/b/*.eval → b.eval
"""

import random

import tiktoken
from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelOutput, get_model
from inspect_ai.scorer import includes, match
from inspect_ai.solver import generate


class Words:
    """In place of an encoding that tiktoken would fetch."""

    def encode(self, text, **_):
        return text.split()


tiktoken.get_encoding = tiktoken.encoding_for_model = lambda name: Words()
PAIRS = [(a, b) for a in range(4) for b in range(4)]
SUMS = [Sample(input=f"{a} + {b}", target=str(a + b), id=f"{a}+{b}", metadata={"first": a}) for a, b in PAIRS]


def saying(seed, share):
    rng = random.Random(seed)
    answers = {(s.input, e): s.target if rng.random() < share else "no idea" for s in SUMS for e in range(2)}
    seen = {}

    def output(input, tools, tool_choice, config):
        text = input[-1].text
        seen[text] = seen.get(text, -1) + 1
        return ModelOutput.from_content("mockllm/model", answers[text, seen[text]])

    return output


for name, share in (("a", 0.5), ("b", 0.8)):
    model = get_model("mockllm/model", custom_outputs=saying(name, share))
    sums = Task(name="sums", dataset=SUMS, solver=generate(), scorer=[match(), includes()])
    eval(sums, model=model, epochs=2, log_format="eval", log_dir=f"logs/{name}", display="none")
