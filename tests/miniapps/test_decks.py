"""Every application's deck S, and every model with it: accepted, and run, with nothing but what is installed."""

import hashlib
from importlib.resources import files

import pytest

from miniapps import applications
from miniapps.errors import UsageError
from miniapps.learning.samples import images
from miniapps.learning.samples.source import MOST
from miniapps.partition import models as meshed
from miniapps.runner import commandline, launch
from miniapps.training import models as parallel
from miniapps.training.graphs import cora
from tests.launch import run_python

OF_MODELS = {
    "training": parallel.names(), "inference": tuple(parallel.of_images()), "mesh": meshed.names(),
}  # fmt: skip
RUNS = [
    *((name, ()) for name in applications.names()),
    *((app, ("--model", model)) for app, models in OF_MODELS.items() for model in models),
    ("training", ("--deck", "graphsage")),
]  # fmt: skip
SHORT = {
    "mesh": ("--steps", "2"),
    "calibrate": ("--deck", "quick", "--budget", "10"),
}  # a part of what takes minutes
IDS = ["-".join([name, *options]) for name, options in RUNS]


def configured(name, *argv, size=1):
    """The options of an application, checked as a run checks them."""
    app = applications.app(name)
    options, own, _ = commandline.parse(app, list(argv), {})
    app.fill_in(own, options, size)
    launch.check(app, own, options, size)
    return own


@pytest.mark.parametrize(("name", "options"), RUNS, ids=IDS)
def test_it_is_accepted_without_files(name, options, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    configured(name, *options)


@pytest.mark.slow
@pytest.mark.timeout(900)  # on a busy machine
@pytest.mark.parametrize(("name", "options"), RUNS, ids=IDS)
def test_it_runs(name, options, tmp_path):
    argv = ["-m", f"miniapps.{name}", *options, *SHORT.get(name, ()), "--out", "run"]
    done = run_python(argv, {"HOME": "/nowhere"}, 850, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "VERIFICATION: PASS" in done.stdout


@pytest.mark.parametrize(("model", "data"), [("mlp", "digits"), ("cnn", "digits"), ("graphsage", "cora")])
def test_a_model_learns_what_comes_with_this_suite(model, data):
    assert configured("training", "--model", model).data.name == data
    assert configured("training", "--model", "mlp", "--data", "blobs").data.name == "blobs"


def test_the_usual_batch_is_cut_to_the_samples_and_another_one_refused():
    batch = configured("training", "--model", "graphsage").training.batch
    assert batch == 128
    assert configured("training").training.batch == 256
    with pytest.raises(UsageError, match="cora has 140 samples"):
        configured("training", "--model", "graphsage", "--batch", "160")


@pytest.mark.parametrize(
    ("model", "mesh", "recipe"),
    [("gpt", "data=2", "dp"), ("gpt", "model=2", "tp"), ("gpt", "data=1,model=2", "dp+tp"),
     ("gpt", "model=2,data=1", "dp+tp"), ("unet", "rows=2,columns=1", "spatial"), ("moe", "data=2", "dp")],
)  # fmt: skip
def test_a_mesh_takes_the_recipe_that_has_its_axes(model, mesh, recipe):
    config = configured("mesh", "--model", model, "--mesh", mesh, size=2)
    assert (config.mesh.recipe, config.mesh.mesh) == (recipe, mesh)
    assert configured("mesh", size=2).mesh.recipe == "dp"


def test_a_mesh_that_no_recipe_has_is_refused_with_those_that_there_are():
    with pytest.raises(UsageError, match=r"no recipe of gpt has these axes; .*dp\+tp: data,model"):
        configured("mesh", "--mesh", "depth=2", size=2)


def test_what_was_chosen_is_told_and_recorded(tmp_path):
    argv = [
        "--steps",
        "1",
        "--guarantee",
        "layout",
        "--set",
        "model.hidden=8",
        "--out",
        str(tmp_path / "run"),
    ]
    prepared = launch.prepare(applications.app("training"), argv, 1)
    assert prepared is not None
    assert prepared.chosen == {"data.name": "digits", "training.calls": "block"}
    assert prepared.problem_options["data.name"] == prepared.effective["data"]["name"] == "digits"


def test_data_that_ship_are_those_that_are_known_and_have_their_source_and_licence_beside_them():
    shipped = files("miniapps.learning.samples") / "shipped"
    known = images.SOURCES["digits"].files | cora.SOURCE.files
    said = (shipped / "README.md").read_text()
    assert {file.name for file in shipped.iterdir()} == {*known, "README.md"}
    for name, digest in known.items():
        content = (shipped / name).read_bytes()
        assert hashlib.sha256(content).hexdigest() == digest and len(content) < MOST
        assert f"## {name}" in said
    assert "BSD 3-Clause License" in said and "The MIT License" in said
