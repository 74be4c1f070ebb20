"""Notebooks and scripts without a new interpreter for each: this process, which has imported the libraries and the
package and has read the committed records, forks.

A line of JSON on standard input asks, a line on standard output answers: {"start": {…}} with a process, {"poll": pid}
with its exit status or null.
"""

import ast
import gc
import importlib
import json
import os
import pkgutil
import re
import sys
import traceback
from pathlib import Path

import datasets  # noqa: F401
import jsonschema  # noqa: F401
import matplotlib
import nbformat
import nltk  # noqa: F401
import scipy.stats  # noqa: F401
import seaborn  # noqa: F401
import sklearn.linear_model  # noqa: F401
import smart_open  # noqa: F401
import snakemake.cli  # noqa: F401
import snakemake.report  # noqa: F401
import statsmodels.api  # noqa: F401
from execnb.shell import CaptureShell
from huggingface_hub import constants
from papermill.cli import papermill as papermill_cli
from papermill.engines import Engine, papermill_engines
from transformers import GPT2LMHeadModel, LlamaForCausalLM, Trainer  # noqa: F401

import redditbias_repro
from redditbias_repro import records

matplotlib.use("Agg")


def read_package():
    """All modules, and what `read_records` keeps of each record."""
    for module in pkgutil.walk_packages(redditbias_repro.__path__, "redditbias_repro."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    for path in records.results_folder(None).rglob("*.json"):
        records._parsed(path.absolute(), records.file_state(path))


def forget_package():
    """Another one is imported then: of a copy of the project, or of a wheel."""
    for name in [m for m in sys.modules if m.partition(".")[0] == "redditbias_repro"]:
        del sys.modules[name]


def needed(cell, module):
    """What a notebook's run needs of a cell: of a module's examples, which test_package.py runs, what they import."""
    given = {"parameters", "injected-parameters"} & set(cell.metadata.get("tags", []))
    if not module or given or re.search(r"(?m)^#\| *(default_exp|export|slow)", cell.source):
        return cell.source
    imports = [n for n in ast.parse(cell.source).body if isinstance(n, ast.Import | ast.ImportFrom)]
    return "\n".join(ast.unparse(n) for n in imports)


class InThisProcess(Engine):
    """An engine of papermill's: cells run in an IPython shell of this process, and the first that raises is the last.
    That a kernel does the same, examples and all, is tested where Snakemake runs notebooks."""

    @classmethod
    def execute_managed_notebook(cls, manager, kernel_name, **options):
        shell = CaptureShell()
        module = any(re.search(r"(?m)^#\| *default_exp", cell.source) for cell in manager.nb.cells)
        for index, cell in enumerate(manager.nb.cells):
            if cell.cell_type != "code":
                continue
            manager.cell_start(cell, index)
            cell.outputs = [nbformat.from_dict(output) for output in shell.run(needed(cell, module))]
            if shell.exc:
                manager.cell_exception(cell, index, exception=shell.exc)
                break
            manager.cell_complete(cell, index)


def run_notebook(notebook, out, parameters):
    """As `papermill NOTEBOOK OUT -p NAME VALUE …`."""
    given = [part for name, value in parameters.items() for part in ("-p", name, value)]
    run_papermill([notebook, out, *given])


def run_papermill(command):
    """As `papermill COMMAND …`."""
    papermill_engines.register("in this process", InThisProcess)
    papermill_cli([*command, "--engine", "in this process", "--no-progress-bar"], standalone_mode=False)


def run_code(code, arguments):
    """As `python -c CODE ARGUMENT …`."""
    sys.argv = ["-c", *arguments]
    exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})


RUNS = {"notebook": run_notebook, "command": run_papermill, "code": run_code}


def start(log, cwd, env, **job):
    """A fork at work in a folder and an environment, which says what it has to say in a file."""
    if pid := os.fork():
        return pid
    status = 1
    try:
        open(log, "w").close()
        for stream, path, mode in ((0, os.devnull, "r"), (1, log, "a"), (2, log, "a")):
            with open(path, mode) as file:
                os.dup2(file.fileno(), stream)
        os.environ.clear()
        os.environ.update(env)
        constants.HF_HUB_OFFLINE = env.get("HF_HUB_OFFLINE", "") in ("1", "true")  # read when it was imported
        os.chdir(cwd)
        sys.path[0] = ""  # not the folder of this file
        here = Path("redditbias_repro", "__init__.py")
        if here.is_file() and here.resolve() != Path(redditbias_repro.__file__).resolve():
            forget_package()
        next(run for name, run in RUNS.items() if name in job)(**job)
        status = 0
    except SystemExit as e:
        status = e.code if isinstance(e.code, int) else int(e.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def exit_status(pid):
    found, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if found else None


if __name__ == "__main__":
    read_package()
    gc.freeze()  # forks then look through nothing of what is imported, and share its memory
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # nothing but answers goes there
    verbs = {"start": lambda job: start(**job), "poll": exit_status}
    for line in sys.stdin:
        ((verb, what),) = json.loads(line).items()
        answers.write(json.dumps(verbs[verb](what)) + "\n")
