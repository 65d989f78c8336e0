"""Targets from programs: other ranks, decks and orderings, and targets that runs cannot predict."""

from dataclasses import replace

import numpy as np
import pytest

from analysis.errors import Unreachable
from analysis.predict.reading import calibration as calibrations
from analysis.predict.simulation.model import predict
from analysis.predict.simulation.target import target
from miniapps.trace.head import problem_hash
from tests.analysis.predict_programs import (
    CALLS,
    calibrated,
    programs,
)


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """Runs of a deck and of half of it."""
    return programs(tmp_path_factory.mktemp("study"))


@pytest.fixture
def calibration():
    """Of two ranks, without noise."""
    return calibrated()


@pytest.mark.parametrize(("ranks", "ms"), [(1, 8.3), (2, 3 * (0.5 + 1.0 + 0.15) + 0.5)])
def test_work_is_shared_and_what_does_not_shrink_stays(study, calibration, ranks, ms):
    answer = predict(target(study, ranks, {}), calibration, replays=400)
    assert answer.prediction.median == pytest.approx(1e-3 * ms, rel=0.01)
    regions = answer.regions.set_index("region")["seconds"]
    assert regions["work"] == pytest.approx(1e-3 * (3 * (0.5 + 2.0 / ranks) + 0.5), rel=1e-6)
    assert (answer.prediction.problem, answer.prediction.ranks) == (study[0].attributes["problem"], ranks)
    assert answer.prediction.traces == (study[0].hash, study[1].hash)


@pytest.mark.parametrize(("ranks", "share"), [(1, 1.0), (2, 0.5), (4, 0.25)])
def test_ranks_take_turns_as_in_the_calibration_or_more(study, calibration, ranks, share):
    """The calibration's two ranks spun on one core, half of which each had: as ranks that had their share anyhow, but
    for messages of four ranks, which take turns as their work does."""
    turning, anyhow = (
        replace(calibration, noise=np.full((300, 2), each), cores=cores)
        for each, cores in ((0.5, 1), (share, None))
    )
    answers = [predict(target(study, ranks, {}), each) for each in (turning, anyhow)]
    walls = [np.median(answer.replays.wall) for answer in answers]
    longer = CALLS * 5e-5 if ranks > 2 else 0.0  # each sum's messages take twice their 50 us
    assert walls[0] - walls[1] == pytest.approx(longer, rel=0.05, abs=1e-12)
    # Twice the time of messages, in half of which a rank has the processor.
    cpus = [np.median(answer.replays.cpu) for answer in answers]
    assert cpus[0] == pytest.approx(cpus[1], rel=0.01)
    told = [any("messages slow down" in text for text in each.prediction.remarks) for each in answers]
    assert told == [ranks > 2, False]


def test_ranks_with_more_blocks_are_waited_for(study, calibration):
    """Eight blocks on three ranks: 3, 3 and 2 of them."""
    answer = predict(target(study, 3, {}), calibration, replays=400)
    assert answer.prediction.median >= 1e-3 * (3 * (0.5 + 2.0 * 3 / 8) + 0.5)
    assert "all-reduces on 3 ranks, measured on 2" in answer.prediction.extrapolated


def test_a_deck_of_another_size_is_marked_unless_it_was_run(study, calibration):
    known = predict(target(study, 1, {"grid.n": "64"}), calibration).prediction
    assert known.median == pytest.approx(1e-3 * (3 * (0.5 + 1.0 + 0.1) + 0.5), rel=0.01)
    assert not known.extrapolated
    twice = predict(target(study, 1, {"grid.n": "256"}), calibration).prediction
    assert twice.median == pytest.approx(1e-3 * (3 * (0.5 + 4.0 + 0.1) + 0.5), rel=0.01)
    # Both runs have as many waits, so that nothing iterates; but two sizes do not distinguish a square from a line.
    assert twice.extrapolated == ("sizes beyond those of the runs",)
    assert any("two sizes (64 and 128) do not distinguish a square" in each for each in twice.remarks)
    between = predict(target(study, 1, {"grid.n": "96"}), calibration).prediction
    assert between.extrapolated == () and not any("distinguish a square" in each for each in between.remarks)
    assert twice.problem == problem_hash("coupled", {"grid.n": 256, "run.seed": 1})


def test_an_ordering_is_another_method(study, calibration):
    same, other = (target(study, 2, {}, reduction=each) for each in (None, "direct in exact"))
    assert same.method != other.method
    prediction = predict(other, calibration).prediction
    assert "direct in exact, priced as direct" in prediction.extrapolated


@pytest.mark.parametrize(
    ("size", "settings", "guarantee", "why"),
    [
        (9, {}, None, "8 blocks, and every rank needs one"),
        (1, {"grid.m": "1"}, None, "not an option of the problem; its options are: grid.n, run.seed"),
        (1, {"grid.n": "many"}, None, "give a value of this type"),
        (1, {"grid.n": "1.5"}, None, "give a value of this type"),
        (1, {"grid.n": "-1"}, None, "give a finite number, above 0"),
        (1, {"grid.n": "1" + 400 * "0"}, None, "give a finite number"),
        (1, {}, "layout", "record a run on one rank with --guarantee layout"),
    ],
)
def test_targets_that_the_runs_do_not_lead_to(study, size, settings, guarantee, why):
    with pytest.raises(Unreachable, match=why):
        target(study, size, settings, guarantee)


def test_runs_of_two_methods_do_not_go_together(study):
    other = {**study[1].attributes, "method": study[1].attributes["method"] | {"run.device": "cuda"}}
    with pytest.raises(Unreachable, match="differ in more than"):
        target([study[0], replace(study[1], attributes=other)], 1, {})


def test_a_program_over_a_mesh_is_not_moved_to_another(study):
    known = study[0].attributes
    meshed = known | {
        "method": known["method"] | {"cuts.over": "data=1"},
        "options": known["options"] | {"cuts.over": {"effect": "spread"}},
    }
    with pytest.raises(Unreachable, match="a mesh of 1 ranks"):
        target([replace(study[0], attributes=meshed)], 2, {})


def test_a_calibration_of_another_machine_is_refused_unless_told(study, calibration):
    found = calibrations.elsewhere(replace(calibration, environment={"cpu": "one"}), {"cpu": "another"})
    assert found == ["cpu: one in the calibration, another in the run"]
    marked = predict(target(study, 2, {}), calibration, elsewhere=found).prediction
    assert "another machine" in marked.extrapolated
