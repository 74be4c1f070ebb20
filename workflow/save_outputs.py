"""Run notebooks in place, so that their saved outputs are fresh: `make notebooks`.

Module notebooks leave out what needs minutes (`#| slow`). Papers' notebooks run whole; but those with a parameter
`measure` show what is on record (`measure = False`), as measuring takes hours: papermill does that. What differs from
run to run is not saved: progress bars, warnings, what libraries print."""

import os
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parent.parent
MEASURE = "measure = True"
QUIET = {"TQDM_DISABLE": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1", "TRANSFORMERS_VERBOSITY": "error"}
SLOW, SKIP = "#| slow", "skip-execution"  # nbclient leaves cells with this tag out


def shown(output) -> bool:
    "Whether an output is for a reader"
    if output.output_type == "stream":
        return output.name == "stdout"
    return "application/vnd.jupyter.widget-view+json" not in output.get("data", {})


def run(path: Path) -> None:
    "Execute a notebook and write it with its outputs"
    notebook = nbformat.read(path, as_version=4)
    whole, code = path.parent.name == "papers", [c for c in notebook.cells if c.cell_type == "code"]
    left_out = [c for c in code if c.source.startswith(SLOW) and not whole]
    for cell in left_out:
        cell.metadata.tags = [*cell.metadata.get("tags", []), SKIP]
    given = next((c for c in code if "parameters" in c.metadata.get("tags", []) and MEASURE in c.source), None)
    kept = {c.id: list(c.outputs) for c in code if given and c.source.startswith(SLOW)}  # of a run that measured
    if given:
        given.source = given.source.replace(MEASURE, "measure = False")
    place = {"metadata": {"path": str(path.parent)}}
    NotebookClient(notebook, timeout=None, kernel_name="python3", resources=place).execute()
    for cell in left_out:
        cell.metadata.tags.remove(SKIP)
        if not cell.metadata.tags:
            del cell.metadata["tags"]
        cell.outputs = []
    if given:
        given.source = given.source.replace("measure = False", MEASURE)
    for cell in code:
        cell.outputs = kept.get(cell.id, [o for o in cell.outputs if shown(o)])
        cell.metadata.pop("execution", None)
    notebook.metadata.pop("widgets", None)
    nbformat.write(notebook, path)


if __name__ == "__main__":
    os.environ.update(QUIET)
    given = [Path(p) for p in sys.argv[1:]] or sorted((ROOT / "nbs").rglob("*.ipynb"))
    for path in given:
        if ".ipynb_checkpoints" not in path.parts:
            print(path.resolve().relative_to(ROOT), flush=True)
            run(path.resolve())
