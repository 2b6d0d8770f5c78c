"""The engine's house rules, read off its sources: who imports, who writes, who knows the future, how long."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import cluster_sim
from cluster_sim.engine import client_state, kv_state, rules, state

PACKAGE = Path(cluster_sim.__file__).parent
ENGINE = PACKAGE / "engine"
SOURCES = sorted(ENGINE.glob("*.py"))
TREES = {path.name: ast.parse(path.read_text(encoding="utf-8")) for path in SOURCES}
ALLOWED_IMPORTS = {"numpy", "numba", "enum", "typing", "math"}
CHANGING = {state.__name__, kv_state.__name__, client_state.__name__}  # the modules of the tables that change
NO_RULES = {"invariants.py", "jit.py"}  # checks for tests, in plain numpy; and the compiler
OWN_ARRAYS = {  # columns of World that are no table; the files that write them
    "running": {"admission.py", "preemption.py", "output.py"},
    "preempted": {"preemption.py"},
    "scores": {"router.py"},
    "hits": {"router.py"},
    "sent_to": {"router.py"},
    "soonest": {"clients.py"},
}
NOT_COMPILED = {"gap_edges_s"}  # for those who read the histogram
ORACLE_WORDS = {"Fate", "Luck", "fates", "luck", "stop_at"}
ORACLE_READERS = {"rules.py", "acceptance.py", "output.py"}


def imported(tree: ast.Module) -> Iterator[str]:
    """Full names of the modules that a source imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def engine_imports(name: str) -> set[str]:
    """Files of the engine that one of them imports."""
    prefix = "cluster_sim.engine."
    modules = {module.removeprefix(prefix).split(".")[0] + ".py" for module in imported(TREES[name])}
    return modules & TREES.keys()


# ---- imports ----


@pytest.mark.parametrize("name", sorted(TREES.keys() - {"jit.py"}))
def test_the_engine_imports_arrays_and_words_only(name: str) -> None:
    """jit.py, which finds the compiler's cache, also uses the standard library."""
    roots = {module.split(".")[0] for module in imported(TREES[name])}
    assert roots <= ALLOWED_IMPORTS | {"cluster_sim"}
    outside = [module for module in imported(TREES[name]) if module.startswith("cluster_sim")]
    assert all(module.startswith("cluster_sim.engine") for module in outside)


def test_imports_inside_the_engine_never_run_in_a_circle() -> None:
    below = {name: engine_imports(name) for name in TREES}
    while below:
        leaves = {name for name, needs in below.items() if not needs & below.keys()}
        assert leaves, f"a circle among {sorted(below)}"
        below = {name: needs for name, needs in below.items() if name not in leaves}


def test_only_the_door_and_recordings_make_tables() -> None:
    """DESIGN.md section 3: the shell does no physics; it knows the tables in a few files only."""
    table_makers = {
        path.name
        for path in PACKAGE.rglob("*.py")
        if path.parent != ENGINE
        and "cluster_sim.engine.rules.Batching" in set(imported(ast.parse(path.read_text(encoding="utf-8"))))
    }
    assert table_makers <= {"build.py", "recording.py"}


# ---- writers ----


def tables() -> Iterator[tuple[str, set[str], set[str]]]:
    """Every table that changes: (class, its columns, the files that its docstring lets write them)."""
    for name, kind in {**vars(state), **vars(kv_state), **vars(client_state)}.items():
        if not isinstance(kind, type) or kind.__module__ not in CHANGING:
            continue
        writers = re.search(r"Written by ((?:\w+\.py(?:,\s+)?)+)", kind.__doc__ or "")
        if writers:
            yield name, set(kind.__annotations__), set(re.split(r",\s+", writers[1]))


def written_columns(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """What a source assigns to (`row.x`, `table.x[..]`, `x[..]` or `table["x"][..]`), and the line."""
    for node in ast.walk(tree):
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, (ast.AugAssign, ast.AnnAssign)):
            targets = [node.target]
        for target in targets:
            parts = target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]
            for part in parts:
                place = part
                while isinstance(place, ast.Subscript):
                    if isinstance(place.slice, ast.Constant) and isinstance(place.slice.value, str):
                        yield place.slice.value, node.lineno
                    place = place.value
                if isinstance(place, ast.Attribute):
                    yield place.attr, node.lineno
                elif isinstance(place, ast.Name) and place.id in OWN_ARRAYS and place is not part:
                    yield place.id, node.lineno


def test_every_table_that_changes_names_its_writers() -> None:
    changing = {name for name, _, _ in tables()}
    reached = {
        word
        for kind in (state.World, state.KvCache, state.Tally)
        for hint in kind.__annotations__.values()
        for word in re.findall(r"\w+", str(hint))
        if any(isinstance(getattr(module, word, None), type) for module in (state, kv_state))
    }
    assert reached - {"Table", "Grid", "Cube"} <= changing
    assert {writer for _, _, writers in tables() for writer in writers} <= TREES.keys()


@pytest.mark.parametrize("name", sorted(TREES.keys() - NO_RULES))
def test_a_column_is_written_only_by_the_files_its_table_names(name: str) -> None:
    """Columns of several tables with one name may be written where any of them may."""
    allowed = {column: set(writers) for column, writers in OWN_ARRAYS.items()}
    for _, columns, writers in tables():
        for column in columns:
            allowed.setdefault(column, set()).update(writers)
    for column, line in written_columns(TREES[name]):
        assert column in allowed, f"{name}:{line} writes {column}, a column of no table that changes"
        assert name in allowed[column], f"{name}:{line} writes {column}"


def test_every_writer_that_a_table_names_does_write_it() -> None:
    """Or hands its rows on to be written: then it is no writer, and the docstring is wrong."""
    for table, columns, writers in tables():
        for writer in writers:
            written = {column for column, _ in written_columns(TREES[writer])}
            names = {node.attr for node in ast.walk(TREES[writer]) if isinstance(node, ast.Attribute)}
            assert written & columns or columns <= names, f"{writer} does not write {table}"


def test_what_does_not_change_is_never_written() -> None:
    constant = {"Request", "Fate", "Batching", "Drafting"}
    changing = {column for _, columns, _ in tables() for column in columns}
    columns = {column for name in constant for column in getattr(rules, name).__annotations__} - changing
    for name, tree in TREES.items():
        assert not {column for column, _ in written_columns(tree)} & columns, name


# ---- the oracle boundary ----


@pytest.mark.parametrize("name", sorted(TREES.keys() - ORACLE_READERS))
def test_nobody_else_foresees_the_output(name: str) -> None:
    """How long an output will be and which drafts are good: acceptance.py and output.py, after the step."""
    words = {node.id for node in ast.walk(TREES[name]) if isinstance(node, ast.Name)}
    words |= {node.attr for node in ast.walk(TREES[name]) if isinstance(node, ast.Attribute)}
    words |= {module.split(".")[-1] for module in imported(TREES[name])}
    assert not words & ORACLE_WORDS


@pytest.mark.parametrize("name", ["router.py", "scheduler.py", "draft_length.py", "after_schedule.py"])
def test_what_decides_does_not_import_what_knows(name: str) -> None:
    """Not through other files either."""
    reached, frontier = set[str](), {name}
    while frontier:
        reached |= frontier
        frontier = {below for above in frontier for below in engine_imports(above)} - reached
    assert not reached & {"acceptance.py", "output.py"}


# ---- size ----


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_files_and_functions_are_short(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 200
    for node in ast.walk(TREES[path.name]):
        if isinstance(node, ast.FunctionDef):
            assert (node.end_lineno or node.lineno) - node.lineno < 60, node.name


@pytest.mark.parametrize("name", sorted(TREES.keys() - {"jit.py"}))
def test_every_rule_is_compiled_and_says_what_it_does(name: str) -> None:
    for node in TREES[name].body:
        if isinstance(node, ast.FunctionDef):
            decorators = {item.id for item in node.decorator_list if isinstance(item, ast.Name)}
            is_plain = name in NO_RULES | {"tables.py"} or node.name in NOT_COMPILED
            assert is_plain or decorators & {"rule", "rare", "entry"}, f"{name}: {node.name}"
            assert node.name.startswith("_") or ast.get_docstring(node), f"{name}: {node.name}"
