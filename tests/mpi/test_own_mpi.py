"""`fpna partition run`: modules of the user's have one hash on every mesh, and torch's gradients."""

import json
import re
from functools import cache

import pytest

from miniapps.trace import read
from miniapps.trace.schema import rank_file
from tests.launch import run_python
from tests.mpi.sectioned import PROGRAMS
from tests.ranks import on_ranks

FILE = PROGRAMS / "own_modules.py"
CLASSES = ["--loss", "cross_entropy", "--inputs", "float32[6,6] int64[6]"]
IMAGES = ["--loss", "cross_entropy", "--inputs", "float32[batch:6,3,rows:32,32] int64[batch:6]"]
TOKENS = ["--inputs", "int64[6,5] int64[6,5]"]
MODULES = {
    "Perceptron": (CLASSES, "batch,features", ("dp", "tp", "dp+tp")),
    "ResNet": (IMAGES, "batch,rows", ("dp", "spatial", "dp+spatial")),
    "Encoder": (TOKENS, "batch,features", ("dp", "tp", "dp+tp")),
    "dropping": (TOKENS, "batch,features", ("dp", "tp", "dp+tp")),
    "Memory": (
        ["--loss", "cross_entropy", "--inputs", "float32[6,4,6] int64[6]"],
        "batch",
        ("dp", "dp", "zero"),
    ),
    "Regional": (
        ["--loss", "cross_entropy", "--inputs", "float32[6,5,6] int64[6]"],
        "batch",
        ("dp", "dp", "dp"),
    ),
    "Talking": (CLASSES, "batch", ("dp", "dp", "dp")),
    "Tied": (TOKENS, "batch,stored", ("dp", "zero", "dp")),
}
SLOW = ("Memory", "dropping", "Perceptron")
EVERY = [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in MODULES]


@cache
def ran(n, *words):
    """(fingerprint, error of gradients or None) of a run on n ranks."""
    run = on_ranks(n, ["-m", "miniapps.partition", "run", *words], timeout=120)
    assert run.returncode == 0, run.stdout + run.stderr
    (found,) = re.findall(r"FINGERPRINT (\w+)", run.stdout)
    error = re.search(r"within (\S+) of the largest", run.stdout)
    return found, float(error[1]) if error else None


def recipe(name, n, which, mesh):
    """A run of a module with the axes of all its recipes."""
    options, axes, recipes = MODULES[name]
    axes = axes if recipes[which] != "zero" else "batch,stored"
    return ran(n, f"{FILE}:{name}", *options, "--axes", axes, "--recipe", recipes[which], "--mesh", mesh)


def test_stages_of_an_own_module_have_one_hash():
    options = [f"{FILE}:Encoder", *TOKENS, "--micro-batches", "2", "--axes", "batch,stage"]
    meshes = ((1, "pp", "stage=1"), (2, "pp", "stage=2"), (4, "dp+pp", "data=2,stage=2"))
    found = [ran(n, *options, "--recipe", recipe, "--mesh", mesh) for n, recipe, mesh in meshes]
    assert len({digest for digest, _ in found}) == 1 and max(error for _, error in found) < 1e-5


def test_cut_norms_of_an_own_module_have_one_hash():
    named = ["--inputs", "int64[batch:6,tokens:5] int64[batch:6,tokens:5]"]
    options = [f"{FILE}:Encoder", *named, "--axes", "batch,features,norms"]
    meshes = ((1, "tp+norms", "model=1"), (3, "tp+norms", "model=3"), (4, "dp+tp+norms", "data=2,model=2"))
    found = [ran(n, *options, "--recipe", recipe, "--mesh", mesh) for n, recipe, mesh in meshes]
    assert len({digest for digest, _ in found}) == 1 and max(error for _, error in found) < 1e-5


@pytest.mark.parametrize("name", EVERY)
def test_one_hash_on_every_mesh(name):
    second = {"dp": "data", "tp": "model", "spatial": "rows", "zero": "data"}[MODULES[name][2][1]]
    third = {"dp+tp": "data=2,model=2", "dp+spatial": "data=2,rows=2"}.get(MODULES[name][2][2], "data=4")
    found = [recipe(name, n, which, mesh) for n, which, mesh in
             ((1, 0, "data=1"), (2, 1, f"{second}=2"), (3, 0, "data=3"), (4, 2, third))]  # fmt: skip
    assert len({digest for digest, _ in found}) == 1, found
    errors = [error for _, error in found]
    assert errors == [None] * 4 if name in ("dropping", "Tied") else max(errors) < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize(("name", "recipes"), [("Perceptron", "dp|tp"), ("Talking", "dp")])
def test_two_ranks_calibrate_an_own_module_and_its_recipes_are_compared(tmp_path, name, recipes):
    plan = f"{FILE}:{name} 'inputs={CLASSES[3]}' loss=cross_entropy {recipes} ranks=2 guarantee=none"
    every = recipes.split("|")
    what = [word for part in ("programs", "collectives") for word in ("--what", part)]
    few = [
        "--budget",
        "0",
        *what,
        "--plan",
        plan,
        "--programs",
        "6",
        "--reduction",
        "library",
        "--no-progress",
    ]
    run = on_ranks(2, ["-m", "miniapps.calibrate", *few, "--out", str(tmp_path / "cal")], timeout=240)
    assert run.returncode == 0, run.stdout + run.stderr
    names = read(tmp_path / "cal" / rank_file(0)).names
    assert sum(each.startswith(f"step {FILE}:{name}") for each in names) == len(every)
    assert any(":mixed" in each for each in names) == (name == "Talking")
    asked = [f"{FILE}:{name}", *CLASSES, "--recipe", ",".join(every), "--ranks", "2"]
    found = run_python(
        ["-m", "miniapps.partition", "search", *asked, "--calibration", str(tmp_path / "cal"), "--json"]
    )
    assert found.returncode == 0, found.stderr
    plans = json.loads(found.stdout)["price"]["tables"]["plans"]
    assert sorted(row["title"].split(", ")[1].split()[0] for row in plans) == every
    assert all(row["compute_s"] > 0 and row["communication_s"] > 0 for row in plans)


def test_a_refusal_ends_all_ranks_with_one_sentence():
    for words, reason in (
        ([f"{FILE}:Absent", *CLASSES], "has no 'Absent'"),
        ([f"{FILE}:Branching", "--inputs", "float32[6,6]"], "a branch that depends on values"),
        ([f"{FILE}:Perceptron", *CLASSES, "--mesh", "data=2"], "2 ranks, but the run has 3"),
        ([f"{FILE}:Perceptron", *CLASSES, "--steps", "0"], "--steps 0"),
    ):
        run = on_ranks(3, ["-m", "miniapps.partition", "run", *words], timeout=60)
        assert run.returncode == 2 and run.stderr.count("python -m miniapps.partition run: ") == 1, run.stderr
        assert reason in run.stderr


def test_models_of_this_package_run_too():
    assert ran(2, "mlp", "--mesh", "data=2")[0] == ran(1, "mlp", "--mesh", "data=1")[0]
