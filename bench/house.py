"""How large the package is, counted from its syntax trees: `python bench/house.py [FOLDER OF A CHECKOUT]`."""

import ast
import io
import re
import sys
import tokenize
from functools import lru_cache
from pathlib import Path

LATER = re.compile(r"""["'](chbias|holisticbias|dialoguefairness)["'/]""")
EMPTY = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
PARAMETERS = 8  # that a function should do with


def code_lines(source: str, tree: ast.Module) -> int:
    """Lines without docstrings, comments and blanks."""
    holders = [n for n in ast.walk(tree) if isinstance(n, (ast.Module, ast.FunctionDef, ast.ClassDef)) and n.body]
    docs = [n.body[0] for n in holders if isinstance(n.body[0], ast.Expr) and isinstance(n.body[0].value, ast.Constant)]
    said = {line for doc in docs for line in range(doc.lineno, doc.end_lineno + 1)}
    tokens = (t for t in tokenize.generate_tokens(io.StringIO(source).readline) if t.type not in EMPTY)
    return len({line for t in tokens for line in range(t.start[0], t.end[0] + 1)} - said)


def imported(name: str, is_package: bool, tree: ast.Module) -> set[str]:
    """Dotted names that a module imports at its top."""
    found = set()
    for n in (n for n in tree.body if isinstance(n, ast.ImportFrom)):
        above = name.split(".") if is_package else name.split(".")[:-1]
        base = ".".join([*(above[: len(above) - n.level + 1] if n.level else []), *([n.module] if n.module else [])])
        found |= {base} | {f"{base}.{a.name}" for a in n.names}
    return found


def count(root: Path) -> dict[str, int]:
    """What is counted, by its name."""
    package = root / "redditbias_repro"
    files = {p: p.read_text(encoding="utf-8") for p in package.rglob("*.py") if p.name != "_modidx.py"}
    trees = {p: ast.parse(text) for p, text in files.items()}
    name_of = lambda p: ".".join(p.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
    uses = {name_of(p): imported(name_of(p), p.name == "__init__.py", tree) for p, tree in trees.items()}
    uses = {m: {u for u in used if u in uses and u != m} for m, used in uses.items()}
    depth = lru_cache(None)(lambda module: 1 + max((depth(u) for u in uses[module]), default=0))
    public = [
        len(n.value.elts)
        for tree in trees.values()
        for n in tree.body
        if isinstance(n, ast.Assign) and any(getattr(t, "id", "") == "__all__" for t in n.targets)
    ]
    functions = [n for tree in trees.values() for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)]
    general = [p for p in files if not {"papers", "corpora"} & {*p.parts}]
    records = [len(p.name) for p in (root / "results").rglob("*.json")]
    top = [p for p in package.iterdir() if (p.suffix == ".py" or p.is_dir()) and p.name[0] != "_"]
    return {
        "code lines": sum(code_lines(text, trees[p]) for p, text in files.items()),
        "exported names": sum(public),
        "modules and folders at the top": len([p for p in top if p.name != "resources"]),
        "longest chain of imports": max(map(depth, uses)),
        f"functions of more than {PARAMETERS} parameters": sum(
            len(f.args.args) + len(f.args.kwonlyargs) > PARAMETERS for f in functions
        ),
        "longest name of a record's file": max(records, default=0),
        "general modules that name a later paper": sum(bool(LATER.search(files[p])) for p in general),
    }


if __name__ == "__main__":
    for what, n in count(Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()).items():
        print(f"{what:45} {n:6,}")
