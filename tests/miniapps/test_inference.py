"""Requests of changing size: one answer per image where that is promised; another answer would be noticed."""

import json
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("torch")

from mpi4py import MPI

import kernels.inference  # noqa: F401 - registers its variants
from kernels import registry
from miniapps.inference import APP
from miniapps.inference.config import InferenceConfig, Seeds
from miniapps.inference.run import asked
from miniapps.runner.main import main
from miniapps.trace import read
from miniapps.trace.records import is_state
from miniapps.training import APP as TRAINING
from miniapps.training.models import of_images

FEW = ["--data", "blobs", "--set", "model.hidden=16", "--no-progress", "--requests", "24"]
FEW += ["--set", "requests.images=20", "--set", "requests.sizes=1 2 7"]


def answered(out, *options):
    """(exit code, result.json) of a run on one rank."""
    code = main(APP, [*FEW, *options, "--out", str(out)], MPI.COMM_SELF)
    return code, json.loads((out / "result.json").read_text())


@pytest.fixture(scope="module")
def layout(tmp_path_factory):
    """A run under `layout`."""
    out = tmp_path_factory.mktemp("inference") / "run"
    return out, *answered(out, "--guarantee", "layout")


def test_layout_takes_static_schedules_and_every_image_has_one_result(layout):
    out, code, result = layout
    assert code == 0 and result["config"]["inference"]["backend"] == "static"
    assert result["fom"]["images_with_several_results"]["value"] == 0
    assert {check["name"]: check["passed"] for check in result["checks"]}["one result per image"]
    assert json.loads((out / "schedule.json").read_text())["sample"] == [8, 8]


def test_every_answer_is_in_the_trace(layout):
    trace = read(layout[0] / "rank-00000.h5")
    prints, values = trace.tables["fingerprints"], trace.tables["values"]
    answers = np.array(
        [is_state(trace.names[name]) for name in prints["name"]]
    )  # the others are the run's chain
    assert prints["block"][answers].tolist() == list(range(24)) == prints["step"][answers].tolist()
    assert set(values["value"].tolist()) == {1.0}
    assert trace.names[values["name"][0]] == "results_per_image"


def test_an_answer_that_depends_on_the_request_is_noticed_and_fails_the_promise(tmp_path, monkeypatch):
    def leaky(forward, weights, sample, threads=1):
        return lambda x: np.tile(np.float32([1.0, 2.0]) + np.float32(2.0**-20) * (len(x) == 7), (len(x), 1))

    key = ("inference", "static", "native")
    monkeypatch.setitem(registry.VARIANTS, key, replace(registry.VARIANTS[key], function=leaky))
    code, result = answered(tmp_path / "run", "--guarantee", "layout")
    assert code == 3 and result["fom"]["images_with_several_results"]["value"] > 0
    assert result["fom"]["largest_ulp"]["value"] == 8.0
    code, result = answered(tmp_path / "other", "--backend", "eager")
    assert code == 0, "nothing is promised, so nothing is broken"


def test_requests_depend_on_seed_and_number_alone():
    config = InferenceConfig(seeds=Seeds(1, 1, 1))
    assert asked(config, 5).tolist() == asked(config, 5).tolist() != asked(config, 6).tolist()
    assert {len(asked(config, request)) for request in range(200)} == set(config.requests.sizes)


def test_weights_are_those_of_the_last_checkpoint_of_a_training(tmp_path, capsys):
    argv = [
        "--data",
        "blobs",
        "--set",
        "model.hidden=16",
        "--steps",
        "4",
        "--checkpoint-every",
        "2",
        "--no-progress",
    ]
    assert main(TRAINING, [*argv, "--out", str(tmp_path / "trained")], MPI.COMM_SELF) == 0
    runs = [answered(tmp_path / name, "--guarantee", "layout", "--weights", str(path))[1]["fingerprints"]
            for name, path in (
                ("run", tmp_path / "trained"),
                ("last", tmp_path / "trained/checkpoints/repeat-0-step-000004.h5"),
                ("earlier", tmp_path / "trained/checkpoints/repeat-0-step-000002.h5"),
            )]  # fmt: skip
    assert runs[0] == runs[1] != runs[2]
    wider = ["--weights", str(tmp_path / "trained"), "--set", "model.hidden=17"]
    assert main(APP, [*FEW, *wider, "--out", str(tmp_path / "no")], MPI.COMM_SELF) == 2
    assert "model.hidden" in capsys.readouterr().err


@pytest.mark.parametrize("model", tuple(of_images()))
def test_every_network_that_is_offered_answers(tmp_path, model):
    assert answered(tmp_path / "run", "--model", model, "--guarantee", "layout")[0] == 0


@pytest.mark.parametrize(
    ("argv", "reason"),
    [
        (["--backend", "nothing"], "There are: auto, eager"),
        (["--backend", "eager", "--guarantee", "layout"], "These meet 'layout': static"),
        (["--set", "requests.images=1000"], "has 512 test images"),
        (["--model", "graphsage"], "There are: cnn, mlp"),
        (["--data", "cora"], "There are: auto, fashion, mnist5000, digits, blobs"),
        (["--set", "model.dropout=0.5"], "no option model.dropout"),
        (["--weights", "nowhere.h5"], "nowhere.h5"),
        (["--set", "requests.sizes=0"], "from 1"),
    ],
)
def test_what_cannot_be_run_is_refused_before_anything_is_created(tmp_path, capsys, argv, reason):
    assert main(APP, [*FEW, *argv, "--out", str(tmp_path / "run")], MPI.COMM_SELF) == 2
    assert reason in capsys.readouterr().err and not (tmp_path / "run").exists()


def test_a_run_without_checkpoints_is_refused_with_what_makes_them(tmp_path, capsys):
    (tmp_path / "run").mkdir()
    assert main(APP, [*FEW, "--weights", str(tmp_path / "run")], MPI.COMM_SELF) == 2
    assert "--checkpoint-every" in capsys.readouterr().err
