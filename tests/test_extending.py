"""docs/how-to/extending.md, followed: on a copy of the tree, in no other places than it names."""

import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.analysis.synthetic import write_run, write_timed
from tests.launch import run_mpi

FEW = ("--set", "problem.sizes=100", "--set", "method.samples=2", "--set", "method.variants=sptr")
CAMPAIGN = """\
name = "decays"
out = "out"

[[runs]]
app = "decay"
ranks = [1, 2]
deck = "L"
"""
ROOT = Path(__file__).resolve().parents[1]


def blocks(heading, page="how-to/extending"):
    """The pieces of files in a section of a page, in their order."""
    text = (ROOT / "docs" / f"{page}.md").read_text()
    section = re.split(rf"^## {heading}$", text, flags=re.MULTILINE)[1].split("\n## ")[0]
    return re.findall(r"```(?:python|cuda|cpp|toml)\n(.*?)```", section, flags=re.DOTALL)


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A copy of the packages and of docs/reference/json.md."""
    copy = tmp_path_factory.mktemp("tree")
    for name in ("fpna", "kernels", "miniapps", "analysis", "jobs"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "docs" / "reference").mkdir(parents=True)
    shutil.copy(ROOT / "docs" / "reference" / "json.md", copy / "docs" / "reference")
    return copy


def python(tree, *words, beside=""):
    """What a command of the copy printed; modules `beside` it can be imported too."""
    done = subprocess.run(
        [sys.executable, "-P", *map(str, words)], cwd=tree, capture_output=True, text=True, timeout=250,
        env=os.environ | {"PYTHONPATH": f"{tree}{os.pathsep}{beside}"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def put(file, text, before=""):
    """Write `text` into the file, or before some line that is in it."""
    if not before:
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
        return
    content = file.read_text()
    assert content.count(before) == 1
    file.write_text(content.replace(before, text + before))


def test_an_ordering(tree, tmp_path):
    put(tree / "kernels/allreduce/schedules/evens.py", *blocks("An ordering"))
    assert python(tree, "-m", "fpna", "kernels", "allreduce", "tree", "evens-first", "-n", "5").strip().endswith(
        "((((x[0] + x[2]) + x[4]) + x[1]) + x[3])"
    )  # fmt: skip
    assert "evens-first" in python(tree, "-m", "fpna", "coupled", "--list")
    run = run_mpi(3, ["-m", "miniapps.reductions", *FEW, "--allreduce", "evens-first", "--out", tmp_path / "run"],
                  cwd=tree, env={"PYTHONPATH": str(tree)})  # fmt: skip
    assert run.returncode == 0, run.stderr


def append(file, text):
    """Write `text` behind what the file has."""
    file.write_text(f"{file.read_text()}\n\n{text}")


TWINS = """
import cupy, numpy as np
from kernels import registry, sums

for n in (1, 2, 1000):
    x = np.random.default_rng(n).standard_normal(n)
    mine, twin = (registry.get("sum", "outside-in", backend) for backend in ("cupy", "numpy"))
    print(mine(cupy.asarray(x)).tobytes() == twin(x).tobytes())
"""


def test_a_sum(tree):
    order, stated, function, on_gpu, registered = blocks("A sum")
    sums = tree / "kernels" / "sums"
    put(sums / "orders.py", f"        {order}", '        Order("reference"')
    put(sums / "trees.py", textwrap.indent(stated, "    "), '    if name == "reference":')
    append(sums / "numpy.py", function)
    shown = python(tree, "-m", "fpna", "kernels", "sums", "tree", "outside-in", "-n", "5")
    assert "((((x[0] + x[4]) + x[1]) + x[3]) + x[2])\nThis is the tree that the order declares." in shown
    append(tree / "kernels/cuda/sums.cu", on_gpu)
    append(sums / "cupy.py", registered)
    assert python(tree, "-c", TWINS, beside=ROOT / "tests/cuda_on_host").split() == ["True"] * 3


WIRES = """
import cupy, ml_dtypes, numpy as np
from kernels.wires import cells_of, codec, cuda

x = np.float32(np.random.default_rng(1).standard_normal(5000)) * np.float32(2.0) ** np.arange(-12, 13, 0.005)[:5000]
x = x.astype(np.float32)
there, data = codec("e3m4"), np.empty(5000, np.uint8)
cells = cells_of(5000)
there.encode(x, cells, data)
print(bool((data == x.astype(ml_dtypes.float8_e3m4).view(np.uint8)).all()))
print(bool((there.over(x, cells) == x.astype(ml_dtypes.float8_e3m4).astype(np.float32)).all()))
out = cupy.empty(5000, cupy.uint8)
cuda.Planned(there, cells).encode(cupy.asarray(x), out)
print(bool((out.get() == data).all()))
"""


def compile_again(tree, source):
    """Compile one source of the extension as it is in the copy, and link it with the others as they were built."""
    objects = next((ROOT / "build").glob(f"temp.*-{sys.implementation.cache_tag}/kernels/native"), Path())
    built = {path.stem: objects / f"{path.stem}.o" for path in (ROOT / "kernels/native").glob("*.cpp")}
    if not built[source].exists():
        pytest.skip("the extension was not built here (make environment)")
    compiler, place = os.environ.get("CXX", "c++"), tree / "kernels" / "native"
    flags = ["-O1", "-fPIC", "-fopenmp", "-ffp-contract=off", "-std=c++17"]
    subprocess.run([compiler, *flags, "-c", place / f"{source}.cpp", "-o", place / "new.o"], check=True)
    built[source] = place / "new.o"
    (extension,) = (tree / "kernels").glob("_native*.so")
    extension.unlink()
    subprocess.run([compiler, "-shared", "-fopenmp", *built.values(), "-o", extension], check=True)


def test_a_wire(tree, tmp_path):
    defined, listed, struct, cast, row = blocks("A wire")
    put(tree / "kernels/wires/reference.py", f"    {defined}", '    "e4m3": Format')
    put(tree / "kernels/wires/codecs.py", f"    {listed}", '    "e4m3": "Cast')
    put(tree / "kernels/include/codes.hpp", struct, "// A whole number of BITS bits")
    put(tree / "kernels/native/wires.cpp", cast, "FPNA_CAST(e4m3,")
    put(tree / "kernels/native/wires.cpp", f"    {row}", "    FPNA_HALVES_ROW(e4m3,")
    compile_again(tree, "wires")
    assert python(tree, "-c", WIRES, beside=ROOT / "tests/cuda_on_host").split() == ["True"] * 3
    few = ["--data", "blobs", "--steps", "2", "--wire", "e3m4:scale=tensor", "--out", tmp_path / "run"]
    trained = run_mpi(2, ["-m", "miniapps.training", *few], cwd=tree, env={"PYTHONPATH": str(tree)})
    assert trained.returncode == 0, trained.stderr


def test_an_application(tree, tmp_path):
    (front,) = blocks("An application")
    new = tree / "miniapps" / "decay"
    put(new / "__init__.py", front)
    main = (tree / "miniapps/reductions/__main__.py").read_text()
    put(new / "__main__.py", main.replace("reductions", "decay"))
    assert "decay        Blocks that decay by their global mean." in python(tree, "-m", "fpna", "--help")
    one = python(tree, "-m", "fpna", "decay", "--guarantee", "layout", "--out", tmp_path / "one")
    several = run_mpi(3, ["-m", "miniapps.decay", "--guarantee", "layout", "--out", tmp_path / "three"], cwd=tree,
                      env={"PYTHONPATH": str(tree)})  # fmt: skip
    assert several.returncode == 0, several.stderr
    assert fingerprint(one) == fingerprint(several.stdout)
    put(new / "decks" / "L.toml", "# Longer.\n[work]\nsteps = 9\n")
    assert "Longer." in python(tree, "-m", "fpna", "decay", "--list")
    put(tmp_path / "c.toml", CAMPAIGN)
    assert "decay" in python(tree, "-m", "fpna", "jobs", "plan", tmp_path / "c.toml")
    assert "IDENTICAL" in python(tree, "-m", "fpna", "report", tmp_path / "one", tmp_path / "three",
                                 "-o", tmp_path / "report.html")  # fmt: skip


def fingerprint(printed):
    """The line of what an application prints that has it."""
    (line,) = [line for line in printed.splitlines() if line.startswith("FINGERPRINT")]
    return line


TASK = ("--data", "blobs", "--batch", "32", "--set", "training.micro=8", "--set", "model.hidden=16", "--steps", "2",
        "--guarantee", "layout", "--quiet")  # fmt: skip


def trained(tree, tmp_path, application, one, two):
    """A model learns on 2 ranks from the command line, and by `fpna` on one: with one hash."""
    alone = python(tree, "-m", "fpna", application, *TASK, *one, "--out", tmp_path / "one")
    argv = ["-m", f"miniapps.{application}", *TASK, *two, "--out", tmp_path / "two"]
    several = run_mpi(2, argv, cwd=tree, env={"PYTHONPATH": str(tree)})
    assert several.returncode == 0, several.stderr
    assert fingerprint(alone) == fingerprint(several.stdout)


def test_a_training_model(tree, tmp_path):
    (model,) = blocks("A training model")
    put(tree / "miniapps/training/models/deep.py", model)
    deep = ("--model", "deep", "--set", "model.depth=2")
    assert "deep: As many hidden layers" in python(tree, "-m", "fpna", "training", "--help")
    trained(tree, tmp_path, "training", (*deep, "--checkpoint-every", "1"), deep)
    checkpoint = tmp_path / "one/checkpoints/repeat-0-step-000001.h5"
    again = python(
        tree, "-m", "fpna", "training", *TASK, *deep, "--restart", checkpoint, "--out", tmp_path / "again"
    )
    (first,) = json.loads((tmp_path / "one" / "result.json").read_text())["fingerprints"]
    assert fingerprint(again).endswith(f"={first}")
    asked = ("--data", "blobs", "--set", "model.hidden=16", "--requests", "3", "--weights", tmp_path / "one")
    answered = python(tree, "-m", "fpna", "inference", *deep, *asked, "--out", tmp_path / "answers")
    assert "VERIFICATION: PASS" in answered


def test_a_mesh_model(tree, tmp_path):
    (model,) = blocks("A mesh model")
    put(tree / "miniapps/partition/models/autoencoder.py", model)
    cut = ("--model", "autoencoder", "--axes", "batch,hidden", "--recipe")
    trained(tree, tmp_path, "mesh", (*cut, "dp", "--mesh", "data=1"), (*cut, "tp", "--mesh", "model=2"))
    explained = python(tree, "-m", "fpna", "partition", "explain", "autoencoder", "--recipe", "tp")
    assert explained.startswith("autoencoder, tp: ")


def test_a_site(tree, tmp_path):
    (site,) = blocks("A site of one's own", "how-to/sites")
    put(tmp_path / "ours.toml", site)
    put(tree / "jobs/sites/theirs.toml", site)
    fits = "[sites.theirs]\nranks_per_node = 2\n[sites.ours]\nranks_per_node = 2\n"
    put(tmp_path / "c.toml", CAMPAIGN.replace('"decay"', '"reductions"').replace('deck = "L"\n', fits))
    scripts = [
        python(tree, "-m", "fpna", "jobs", "render", tmp_path / "c.toml", "--site", named)
        for named in ("theirs", tmp_path / "ours.toml")
    ]
    assert all(
        "srun --mpi=pmi2 -N " in script and "# Our MPICH speaks PMI-2." in script for script in scripts
    )


def test_a_study(tree, tmp_path):
    front, study = blocks("A study")
    new = tree / "analysis" / "studies" / "lengths"
    new.mkdir()
    (new / "__init__.py").write_text(front)
    (new / "study.py").write_text(study)
    page = tree / "docs" / "reference" / "json.md"
    page.write_text(page.read_text() + "\n### lengths\n\n<!-- lengths -->\n<!-- /lengths -->\n")
    python(tree, "-m", "analysis.studies.documentation", page)
    assert "| `wall_s` | number, s | first event to last, longest rank |" in page.read_text()
    run = write_run(tmp_path / "run")
    assert "lengths      how long launches ran" in python(tree, "-m", "fpna", "--help")
    shown = python(tree, "-m", "fpna", "lengths", run, "--csv", tmp_path / "csv")
    assert "The longest of 1 is run, of " in shown
    assert (tmp_path / "csv" / "lengths.csv").read_text().startswith("run,repeat,wall_s\nrun,0,")
    python(tree, "-m", "fpna", "report", run, "-o", tmp_path / "report.html")
    html = (tmp_path / "report.html").read_text()
    assert '<section id="lengths">' in html and "Seconds of each launch" in html
    short = write_timed(tmp_path / "short", lambda rank, step: [("step", 0.2, [])])
    assert "too-short" in python(tree, "-m", "fpna", "lint", short)
    assert "analysis lengths" in python(tree, "-m", "fpna", "ask", "duration of a launch", run)
