"""The walls: the imports that each package may have. docs/explanation/architecture.md describes the rooms."""

from __future__ import annotations

import ast
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from jobs.applications import options as known_options
from miniapps import applications
from miniapps.partition import models as meshed
from miniapps.training import models as parallel
from tests import syntax

ROOT = Path(__file__).resolve().parents[1]
TOPS = ("kernels", "miniapps", "analysis", "jobs", "fpna")
# Who may import whom among the top packages.
ALLOWED = {
    "kernels": set(),
    "miniapps": {"kernels"},
    "analysis": {"kernels", "miniapps"},
    "jobs": {"miniapps", "kernels"},
    "fpna": {"kernels", "miniapps", "analysis", "jobs"},
}
# Of other packages, what `analysis` may know: what a file is, what a promise is, who owns which block, what "different"
# means, how commands speak, and no application.
OPEN_TO = {
    "analysis": (
        "miniapps.trace", "miniapps.untrusted", "miniapps.system.environment", "miniapps.layout.owners",
        "miniapps.system.figures", "miniapps.system.scope", "miniapps.system.python",
        "kernels.guarantees", "kernels.tree",
        "kernels.VERSION", "kernels.as_json", "kernels.bits", "kernels.sizes",
        "miniapps.partition.showing.picture", "miniapps.partition.showing.staged",
        "kernels.torchops.verdicts", "kernels.commands.entry", "kernels.commands.options", "kernels.progress",
    ),
}  # fmt: skip
HEAVY = ("torch", "cupy", "scipy", "matplotlib", "pandas")
# Modules that exist for one of these, and are themselves imported only where used.
FOR_ONE = ("kernels.learning.bayesian", "kernels.stencil.cupy", "kernels.vectors.cupy",
           "kernels.torchops.alternatives.opaque",
           "kernels.torchops.alternatives.operands", "kernels.torchops.alternatives.operators",
           "kernels.torchops.alternatives.reductions", "kernels.torchops.alternatives.lookups",
           "kernels.torchops.alternatives.replacing",
           "kernels.torchops.audit", "kernels.torchops.calls",
           "kernels.torchops.cases", "kernels.torchops.differences", "kernels.torchops.given",
           "kernels.torchops.own", "kernels.torchops.pools", "kernels.torchops.results",
           "miniapps.coupled.convolution", "miniapps.coupled.surrogate",
           "miniapps.calibrate.programs", "miniapps.partition.models.attention",
           "miniapps.partition.execution.block_vector",
           "miniapps.partition.execution.code", "miniapps.partition.execution.compute",
           "miniapps.partition.execution.feedback",
           "miniapps.partition.execution.fixed", "miniapps.partition.execution.given",
           "miniapps.partition.execution.learn",
           "miniapps.partition.execution.parts",
           "miniapps.partition.execution.pieces", "miniapps.partition.pricing.dry",
           "miniapps.partition.pricing.forms", "miniapps.partition.pricing.talk",
           "miniapps.partition.pricing.rehearse", "miniapps.partition.pricing.together",
           "miniapps.partition.execution.relay", "miniapps.partition.execution.ring",
           "miniapps.partition.execution.run",
           "miniapps.partition.execution.totals",
           "miniapps.dlrm.clicknet", "miniapps.dlrm.watched",
           "miniapps.learning.gradients.chained",
           "miniapps.learning.gradients.network", "miniapps.learning.gradients.parallel",
           "miniapps.mesh.judged", "miniapps.mesh.trainer", "miniapps.training.graphs.fields")  # fmt: skip

# Modules of one contract, in a folder of the room that lists them.
FAMILIES = ("kernels.allreduce.schedules",)


@cache
def modules() -> list[tuple[str, ast.Module]]:
    """(dotted name, syntax tree) of every module."""
    return [
        (".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"), tree)
        for top in TOPS
        for path, tree in syntax.modules(top)
        if "harnesses" not in path.parts  # examples for other programs
    ]


@cache
def statements(tree: ast.Module) -> list[tuple[ast.Import | ast.ImportFrom, list[str]]]:
    """All imports in a module, anywhere, each with the dotted names of what it imports."""
    found: list[tuple[ast.Import | ast.ImportFrom, list[str]]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.append((node, [alias.name for alias in node.names]))
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.append((node, [f"{node.module}.{alias.name}" for alias in node.names]))
    return found


def imported(tree: ast.Module) -> list[str]:
    """The dotted names of all that a module imports, anywhere."""
    return [name for _, names in statements(tree) for name in names]


@cache
def for_types_alone(tree: ast.Module) -> set[ast.AST]:
    """What stands under `if TYPE_CHECKING`, which no program executes."""
    if not any(name.endswith("TYPE_CHECKING") for name in imported(tree)):
        return set()
    conditions = (node for node in ast.walk(tree) if isinstance(node, ast.If))
    bodies = (node.body for node in conditions if ast.unparse(node.test) == "TYPE_CHECKING")
    return {node for body in bodies for statement in body for node in ast.walk(statement)}


def room(name: str) -> str:
    """The package that holds a module, or a module beside packages itself."""
    parts = name.split(".")
    depth = 2
    while depth < len(parts) and (ROOT / Path(*parts[: depth + 1])).is_dir():
        depth += 1
    name = ".".join(parts[:depth])
    return name.rpartition(".")[0] if name in FAMILIES else name


def test_top_packages_import_one_way():
    wrong = [
        f"{name} imports {other}"
        for name, tree in modules()
        for other in imported(tree)
        if (mine := name.partition(".")[0]) != (theirs := other.partition(".")[0]) and theirs in TOPS
        if theirs not in ALLOWED[mine]
    ]
    assert not wrong


def test_the_analysis_knows_files_and_promises_alone():
    wrong = [
        f"{name} imports {other}"
        for name, tree in modules()
        for other in imported(tree)
        if name.startswith("analysis") and other.startswith(("kernels", "miniapps"))
        if other != "miniapps" and not other.startswith(OPEN_TO["analysis"])
    ]
    assert not wrong


def test_the_analysis_compares_nothing_with_the_name_of_an_application():
    """What a trace states decides: its options' effects and records, its names, its promises."""
    known = set(applications.names())
    wrong = [
        f"{name}, line {node.lineno}: {ast.unparse(node)}"
        for name, tree in modules()
        if name.startswith("analysis")
        for node in ast.walk(tree)
        if isinstance(node, ast.Compare) and known & strings_of(node, tree)
    ]
    assert known and not wrong


def strings_of(comparison: ast.Compare, tree: ast.Module) -> set[object]:
    """The constants in a comparison, those that stand under a name at the top of the module too."""
    top = {
        target.id: statement.value
        for statement in tree.body
        if isinstance(statement, ast.Assign)
        for target in statement.targets
        if isinstance(target, ast.Name)
    }
    sides = [comparison.left, *comparison.comparators]
    sides += [top[side.id] for side in sides if isinstance(side, ast.Name) and side.id in top]
    plain = (side for side in sides if isinstance(side, ast.Constant | ast.Tuple | ast.List | ast.Set))
    return {node.value for side in plain for node in ast.walk(side) if isinstance(node, ast.Constant)}


def test_the_analysis_asks_for_no_option_by_its_key():
    """What an option is for, its effect says. Studies may know the options that the runs they are about recorded."""
    options = {key for name in applications.names() for key in known_options(name)}
    keys = {key for key in options if not key.startswith("run.")}
    wrong = {
        f"{name}: {node.value}"
        for name, tree in modules()
        if name.startswith("analysis") and not name.startswith("analysis.studies.")
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and node.value in keys
    }
    assert keys and not wrong


def test_argparse_is_in_the_commands_of_kernels_alone():
    users = {
        name
        for name, tree in modules()
        if name.startswith("kernels") and any(other.startswith("argparse") for other in imported(tree))
    }
    assert users and all(name.startswith(("kernels.commands", "kernels.__main__")) for name in users)


def test_kernels_know_mpi_in_the_execution_of_all_reduces_and_what_looks_at_it_alone():
    users = {
        name
        for name, tree in modules()
        if name.startswith("kernels") and any(other.startswith("mpi4py") for other in imported(tree))
    }
    beside = ("kernels.allreduce.execution", "kernels.allreduce.instruments", "kernels.commands")
    assert users and all(name.startswith(beside) for name in users)


@pytest.mark.parametrize("top", TOPS)
def test_no_rooms_import_each_other_in_a_circle(top):
    graph: dict[str, set[str]] = {}
    for name, tree in modules():
        # The front of a room hands on what is in it and below it.
        if name.startswith(f"{top}.") and not name.endswith("__main__") and room(name) != name:
            others = {room(other) for other in imported(tree) if other.startswith(f"{top}.")}
            graph.setdefault(room(name), set()).update(others - {room(name)})
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


@pytest.mark.parametrize("top", TOPS)
def test_no_files_import_each_other_in_a_circle(top):
    """Imports inside functions count: who reads the one file has to know the other."""
    files = {name for name, _ in modules()}
    graph = {}
    for name, tree in modules():
        if name.startswith(top):
            typing = for_types_alone(tree)
            used = {
                other if other in files else other.rpartition(".")[0]
                for node, names in statements(tree)
                if node not in typing
                for other in names
            }
            graph[name] = (used & files) - {name}
    assert graph
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_heavy_packages_are_imported_only_where_used():
    wrong = [
        f"{name} imports {other}"
        for name, tree in modules()
        if not name.startswith(("analysis", *FOR_ONE))
        for statement, names in statements(tree)
        if statement in tree.body
        for other in names
        if other.split(".")[0] in HEAVY
    ]
    assert not wrong


def test_kernels_in_cpp_know_no_python():
    """Only the bindings do: what includes pybind11 takes seconds longer to compile."""
    known = {"pybind11": {"bindings.cpp"}, "Python.h": {"environment.cpp"}}
    for header, files in known.items():
        found = {
            path.name
            for folder in ("native", "include")
            for path in (ROOT / "kernels" / folder).glob("*.?pp")
            if f"#include <{header}" in path.read_text()
        }
        assert found == files


# Where each package or module has its own class of this name, as a contract asks.
CONTRACTS = {"Deck", "Known", "Options", "Preconditioner", "Sizes"}


def test_a_name_of_a_class_means_one_thing_in_its_room():
    """In packages two deep, such as `miniapps.partition` with all that is below it; each study is a room."""
    places: dict[tuple[str, str], list[str]] = {}
    for name, tree in modules():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                depth = 3 if name.startswith("analysis.studies.") else 2
                places.setdefault((".".join(name.split(".")[:depth]), node.name), []).append(name)
    assert not {key: where for key, where in places.items() if len(where) > 1 and key[1] not in CONTRACTS}


def test_a_model_is_named_by_its_file_and_as_a_default_alone():
    names = {name for package in (parallel, meshed) for name in package.names()}
    rooms = ("learning", "training", "dlrm", "mesh", "partition", "embeddings", "runner")
    found = {
        (name, node.value)
        for name, tree in modules()
        if name.startswith(tuple(f"miniapps.{room}" for room in rooms)) and ".models." not in name
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and node.value in names
    }
    assert found == {("miniapps.training.config", "mlp"), ("miniapps.mesh.config", "gpt")}
