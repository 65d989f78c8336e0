"""Tests call only public names: none of the code that begins with an underscore."""

import ast
import re
from functools import cache

from tests.syntax import ROOT, modules, parsed

CODE = ("kernels", "miniapps", "analysis", "jobs", "fpna", "benchmarks")
EXTENSION = "_native"  # the kernels in C++, which tests call as the modules over them do
# Programs that look into objects of the code, where nothing else shows whether a promise about memory or order is kept.
# No file is added here: what a test has to see gets a name without an underscore.
LOOK_INTO = {
    "tests/jobs/test_cluster_faults.py": {"_process"},
    "tests/kernels/test_handover.py": {"_waiting", "_sums"},
    "tests/miniapps/test_coupled_numerics.py": {"_physics"},
    "tests/miniapps/test_trace.py": {"_pending"},
    "tests/mpi/programs/added.py": {"_started", "_adding"},
    "tests/mpi/programs/allreduce_device.py": {"_admit"},
    "tests/mpi/programs/allreduce_properties.py": {"_requests", "_reduce"},
    "tests/mpi/programs/allreduce_uses.py": {"_comm"},
    "tests/mpi/programs/ddp.py": {"_groups", "_means"},
    "tests/mpi/programs/environments.py": {"_trainings", "_axes"},
    "tests/mpi/programs/order_free_properties.py": {"_added"},
    "tests/mpi/programs/watch_properties.py": {"_strips", "_receives", "_struck", "_needed", "_blocks"},
    "tests/mpi/programs/wrapped.py": {"_plans"},
}


def private(name):
    return name.startswith("_") and not name.startswith("__") and name not in ("_", EXTENSION)


@cache
def defined():
    """Private names of modules, functions, classes, modules' variables and attributes in the code."""
    found = set()
    for top in CODE:
        for path, tree in modules(top):
            found.update(path.relative_to(ROOT).with_suffix("").parts)
            for node in ast.walk(tree):
                if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                    found.add(node.name)
                elif isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Store):
                    found.add(node.id if isinstance(node, ast.Name) else node.attr)
    return {name for name in found if private(name)}


def used(path):
    """(line, name) of private names of the code in a module of tests: imported, looked up, or replaced by name."""
    if not defined() & set(re.findall(r"\b_\w+", path.read_text())):
        return
    tree = parsed(path)
    own = {node.name for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in CODE:
            names = [*node.module.split("."), *(alias.name for alias in node.names)]
        elif isinstance(node, ast.Attribute) and not (
            isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
        ):
            names = [node.attr] if node.attr in defined() else []
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") in ("setattr", "object", "patch"):
            texts = [
                word.value
                for word in node.args
                if isinstance(word, ast.Constant) and isinstance(word.value, str)
            ]
            names = [part for text in texts for part in text.split(".") if part in defined()]
        else:
            continue
        yield from ((node.lineno, name) for name in names if private(name) and name not in own)


def test_tests_use_no_private_names_of_the_code():
    found = {}
    for path in sorted((ROOT / "tests").rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        for line, word in used(path):
            if word not in LOOK_INTO.get(name, ()):
                found[f"{name}:{line}"] = word
    assert not found
    there = {name for name in LOOK_INTO if {word for _, word in used(ROOT / name)} != LOOK_INTO[name]}
    assert not there, "no longer looked into: shorten the list"
