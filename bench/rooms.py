"""The rooms of the package and what they import, drawn: `python bench/rooms.py` writes docs/rooms.svg and .png."""

import ast
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ROOMS = {
    "records": "result records, paths, errors that help",
    "specs": "bias specifications: terms and swaps",
    "stats": "tests, intervals, packing, verdicts",
    "data": "pairs, prompts, contexts; readers of releases",
    "models": "models loaded, as they are or in a chat",
    "scoring": "how likely a text is to a model",
    "answers": "what a model answers; text metrics",
    "debias": "losses and training",
    "metrics": "what is asked of a model, and its values",
    "show": "tables, figures, pages",
    "papers": "each paper's numbers, statements, report",
    "cli": "the command redditbias",
}


def room_imports(package: Path = ROOT / "redditbias_repro") -> tuple[Counter, Counter]:
    """How often a module of one room imports a module of another, and how many modules each room has."""
    arrows, modules = Counter(), Counter()
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package).parts
        own = parts[0].removesuffix(".py")
        if own not in ROOMS or path.name == "__init__.py":
            continue
        modules[own] += 1
        used = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom):
                above = list(parts[: -node.level]) if node.level else []
                named = (node.module or "").split(".") if node.module else []
                if node.level or named[:1] == ["redditbias_repro"]:
                    used.add(tuple([*above, *(named if node.level else named[1:])] or [node.names[0].name]))
        arrows.update((own, u[0]) for u in used if u[0] in ROOMS and u[0] != own)
    return arrows, modules


def draw():
    """The rooms from the ground to the door, with an arc to each room that one imports from."""
    import matplotlib.pyplot as plt
    from matplotlib.patches import FancyArrowPatch

    arrows, modules = room_imports()
    place = {room: -i for i, room in enumerate(ROOMS)}
    figure, ax = plt.subplots(figsize=(9, 6))
    for room, y in place.items():
        ax.text(-0.1, y, room, ha="right", va="center", weight="bold", fontsize=11)
        ax.text(0.1, y, ROOMS[room], ha="left", va="center", fontsize=9)
        ax.text(-1.35, y, f"{modules[room]}", ha="right", va="center", fontsize=9, color="0.4")
    for (lower, upper), n in sorted(arrows.items()):
        ends = (-1.6, place[lower]), (-1.6, place[upper])
        look = dict(arrowstyle="-|>", mutation_scale=8, linewidth=0.4 + n / 12, color="#33476b", alpha=0.55)
        ax.add_patch(FancyArrowPatch(*ends, connectionstyle=f"arc3,rad={-0.5}", shrinkA=3, shrinkB=3, **look))
    ax.set(xlim=(-4.1, 3.6), ylim=(-len(ROOMS) + 0.4, 0.8))
    ax.set_title("A room imports only from rooms above it", fontsize=12)
    ax.text(-1.35, 0.6, "modules", ha="right", va="center", fontsize=8, color="0.4")
    ax.axis("off")
    plt.close(figure)
    return figure


if __name__ == "__main__":
    from redditbias_repro.show.saving import save_figure

    for path in save_figure(draw(), ROOT / "docs" / "rooms"):
        print(path.relative_to(ROOT))
