"""The plan of the house: a room uses only rooms above it, and general rooms know no paper."""

import ast
import importlib
import importlib.util
import inspect
import re
import tempfile
import typing
from pathlib import Path

import pytest

from redditbias_repro.records import repo_root
from redditbias_repro.show.saving import same_drawing, save_figure

ROOT = repo_root()
PACKAGE = ROOT / "redditbias_repro"
ROOMS = (
    "records",
    "specs",
    "stats",
    "data",
    "models",
    "scoring",
    "answers",
    "debias",
    "metrics",
    "show",
    "papers",
    "cli",
)
PAPERS = ("redditbias", "chbias", "holisticbias", "dialoguefairness")
NAMED = re.compile(rf"(?<![\w.])({'|'.join(PAPERS)})(?!_repro)(?!\w)")
DEFAULT = 'DEFAULT_PAPER = "redditbias"'  # in records: whose a bare name is


def name_of(path):
    """The dotted name of a module: data.registry, data for its facade."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(p): p for p in sorted(PACKAGE.rglob("*.py")) if p.name not in ("_modidx.py", "__main__.py")}
GENERAL = [
    name for name in MODULES
    if name not in ("", "cli")  # the command is called redditbias
    and not re.match(rf"data\.corpora\.|papers\.(report|{'|'.join(PAPERS)})\b", name)
]  # fmt: skip


def used(name, everywhere=False):
    """Modules that a module imports at its top, or `everywhere`."""
    path = MODULES[name]
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = set()
    for node in ast.walk(tree) if everywhere else tree.body:
        if isinstance(node, ast.ImportFrom):
            above = path.relative_to(PACKAGE).parts[: -node.level] if node.level else ()
            base = [*above, *(node.module or "").split(".")] if node.level else (node.module or "").split(".")
            if node.level == 0 and base[0] != "redditbias_repro":
                continue
            base = ".".join(part for part in (base if node.level else base[1:]) if part)
            inner = {f"{base}.{a.name}".strip(".") for a in node.names}
            found |= (inner & MODULES.keys()) or {base}
    return found & MODULES.keys() - {""}


def strings(tree):
    """String constants that are no docstrings, with their lines."""
    holders = (ast.Module, ast.FunctionDef, ast.ClassDef)
    docs = {
        id(n.body[0].value)
        for n in ast.walk(tree)
        if isinstance(n, holders) and n.body and isinstance(n.body[0], ast.Expr)
    }
    return [n for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str) and id(n) not in docs]


def test_every_module_stands_in_a_room_and_its_notebook_where_it_does():
    assert {name.split(".")[0] for name in MODULES} == {"", *ROOMS}
    for nb in (ROOT / "nbs").rglob("*.ipynb"):
        if found := re.search(r"#\| default_exp ([\w.]+)", nb.read_text(encoding="utf-8")):
            stands = nb.relative_to(ROOT / "nbs").with_suffix("").as_posix().replace("/", ".")
            # nbdev exports no notebook whose name begins with an underscore
            assert found[1] == {"main": "__main__"}.get(stands, re.sub(r"\.index$", ".__init__", stands))


@pytest.mark.parametrize("name", GENERAL)
def test_a_general_room_knows_no_paper(name):
    text = MODULES[name].read_text(encoding="utf-8")
    lines = text.splitlines()
    named = [lines[n.lineno - 1] for n in strings(ast.parse(text)) if NAMED.search(n.value)]
    assert [line for line in named if not line.startswith(DEFAULT)] == []
    known = [m for m in used(name, True) if re.match(r"data\.corpora\.|papers\.", m) and m.split(".")[-1] in PAPERS]
    assert known == [], "what a paper released or prints is reached by its name, through data"


def test_a_room_uses_only_rooms_above_it():
    place = {room: i for i, room in enumerate(ROOMS)}
    room = lambda name: name.split(".")[0]
    wrong = [
        f"{name} imports {other}"
        for name in MODULES
        if name
        for other in used(name, True)
        if place[room(other)] > place[room(name)]
    ]
    assert wrong == []


def test_imports_make_no_circle():
    done, above = set(), []

    def visit(name):
        assert name not in above, f"{' > '.join(above)} > {name}"
        if name not in done:
            above.append(name)
            for other in used(name):
                visit(other)
            done.add(above.pop())

    for name in MODULES:
        if name:
            visit(name)


# of these a type says of what: `list[str]`, `dict[str, Any]`
OF_WHAT = {"Callable", "Counter", "Iterable", "Iterator", "Mapping", "Sequence", "dict", "list", "set", "tuple"}


def untyped(body, owner=""):
    """Public parameters, values and fields whose type is not said, or in part: what `pyright --verifytypes` counts."""
    for n in body:
        if isinstance(n, ast.ClassDef) and not n.name.startswith("_"):
            yield from untyped(n.body, f"{n.name}.")
        said = {}
        if isinstance(n, ast.AnnAssign):
            said = {ast.unparse(n.target): n.annotation}
        elif isinstance(n, ast.FunctionDef) and (not n.name.startswith("_") or n.name in ("__init__", "__call__")):
            static = any(isinstance(d, ast.Name) and d.id == "staticmethod" for d in n.decorator_list)
            parameters = [*n.args.posonlyargs, *n.args.args][1 if owner and not static else 0 :] + n.args.kwonlyargs
            parameters += [a for a in (n.args.vararg, n.args.kwarg) if a]
            said = {f"{n.name}({a.arg})": a.annotation for a in parameters}
            said |= {} if n.name == "__init__" else {f"{n.name}()": n.returns}
        for what, annotation in said.items():
            nodes = [] if annotation is None else list(ast.walk(annotation))
            whole = {id(s.value) for s in nodes if isinstance(s, ast.Subscript)}
            in_part = any(isinstance(s, ast.Name) and s.id in OF_WHAT and id(s) not in whole for s in nodes)
            if annotation is None or in_part:
                yield owner + what


def test_what_says_no_type_is_found():
    code = (
        "class A:\n  b: list\n  def __init__(self, c): ...\n  def _d(self, e): ...\ndef f(g: dict[str, int], *h): ..."
    )
    assert list(untyped(ast.parse(code).body)) == ["A.b", "A.__init__(c)", "f(h)", "f()"]


@pytest.mark.parametrize("name", sorted(MODULES))
def test_every_public_name_says_its_type(name):
    """The package ships `py.typed`: a type checker takes what it says, and these are names that there are."""
    tree = ast.parse(MODULES[name].read_text(encoding="utf-8"))
    assert list(untyped(tree.body)) == []
    module = importlib.import_module(f"redditbias_repro.{name}".rstrip("."))
    names = dict(vars(module))
    for n in tree.body:  # what is imported for type checkers alone
        if isinstance(n, ast.If) and ast.unparse(n.test) == "TYPE_CHECKING":
            exec(compile(ast.Module(n.body, []), str(MODULES[name]), "exec"), names)
    own = [v for k, v in vars(module).items() if k[0] != "_" and getattr(v, "__module__", "") == module.__name__]
    for value in own:
        for typed in [value, *vars(value).values()] if inspect.isclass(value) else [value]:
            if inspect.isclass(typed) or inspect.isfunction(typed):
                typing.get_type_hints(typed, localns=names)


@pytest.mark.parametrize(
    "room, names",
    {
        "specs": "BiasSpec load_spec list_specs",
        "data": "fetch load_pairs load_phrases",
        "models": "load_model",
        "scoring": "perplexity",
        "metrics": "lmb",
    }.items(),
)
def test_what_other_peoples_code_relies_on(room, names):
    module = __import__(f"redditbias_repro.{room}", fromlist=["*"])
    assert all(callable(getattr(module, name)) and name in module.__all__ for name in names.split())


PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "bench").glob("*.py")]
IMPORT = re.compile(r"from (redditbias_repro[\w.]*) import (\([^)]*\)|[^\n\"`;#]*)")


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_what_pages_import_and_link_to_is_there(page):
    text = page.read_text(encoding="utf-8")
    for module, names in IMPORT.findall(text):
        there = __import__(module, fromlist=["*"])
        for name in re.sub(r"[()\s]", " ", names).split(","):
            if name.strip():
                assert hasattr(there, name.split(" as ")[0].strip()), f"{module} has no {name.strip()}"
    for path in re.findall(r"(?<![\w/.-])(nbs/[\w/]+\.ipynb|redditbias_repro/[\w/]+\.py)", text):
        assert (ROOT / path).is_file(), path


def test_the_picture_of_the_rooms_is_of_these_imports():
    spec = importlib.util.spec_from_file_location("rooms", ROOT / "bench" / "rooms.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert tuple(module.ROOMS) == ROOMS
    arrows, modules = module.room_imports(PACKAGE)
    assert all(ROOMS.index(lower) > ROOMS.index(upper) for lower, upper in arrows) and sum(modules.values()) > 80
    with tempfile.TemporaryDirectory() as folder:
        drawing, _ = save_figure(module.draw(), Path(folder) / "rooms")
        before = (ROOT / "docs" / "rooms.svg").read_text(encoding="utf-8")
        assert same_drawing(before, drawing.read_text(encoding="utf-8")), "run: python bench/rooms.py"


def test_what_is_counted_of_the_package_by_hand(tmp_path):
    spec = importlib.util.spec_from_file_location("house", ROOT / "bench" / "house.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    package = tmp_path / "redditbias_repro"
    (package / "room").mkdir(parents=True)
    (package / "room" / "__init__.py").write_text("", encoding="utf-8")
    (package / "low.py").write_text('"""Words."""\n# more\n__all__ = ["f"]\n\n\ndef f(a):\n    "Doc"\n    return a\n')
    (package / "room" / "high.py").write_text(
        "from ..low import f\n\nx = 'chbias'\n" + f"def g({', '.join('abcdefghi')}): pass\n"
    )
    found = module.count(tmp_path)
    assert list(found.values()) == [6, 1, 2, 2, 1, 0, 1]
    here = module.count(ROOT)
    assert here["longest chain of imports"] <= 10 and here["longest name of a record's file"] <= 100
    assert here["modules and folders at the top"] == 12 and here["general modules that name a later paper"] == 0
