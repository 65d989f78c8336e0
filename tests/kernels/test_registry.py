"""The registry: a choice can run and meets the guarantee; a refusal names alternatives."""

import pytest

import kernels.sums  # noqa: F401  (registers its variants)
from kernels import registry
from kernels.guarantees import LEVELS, ChoiceError, meets
from kernels.registry import check, get, operations, variant, variants


@pytest.fixture
def twist(monkeypatch):
    """An operation of its own: `left` and `right` on the CPU, `right` also on a device that is not there."""
    monkeypatch.setattr(registry, "VARIANTS", {})
    variant("twist", "right", backend="moon", guarantee="run", why="cold", available=lambda: "no rocket")(max)
    variant("twist", "right", backend="native", guarantee="run", why="cold")(max)
    variant("twist", "left", backend="native", guarantee="exact", why="one way only")(min)
    variant("twist", "up", backend="moon", guarantee="layout", why="far", available=lambda: "no rocket")(sum)


def test_levels_are_ordered_and_each_keeps_the_promises_before_it():
    for i, level in enumerate(LEVELS):
        assert [meets(level, asked) for asked in LEVELS] == [True] * (i + 1) + [False] * (len(LEVELS) - i - 1)


@pytest.mark.parametrize("arguments", [("bitwise", "run"), ("run", "bitwise")])
def test_an_unknown_level_is_answered_with_the_levels(arguments):
    with pytest.raises(ChoiceError, match="'bitwise': choose one of none, run, layout, exact"):
        meets(*arguments)


def test_a_variant_is_found_by_name_and_called_like_its_function(twist):
    assert get("twist", "left")(3, 2) == 2
    assert [(v.name, v.backend) for v in variants("twist")] == [
        ("right", "moon"),
        ("right", "native"),
        ("left", "native"),
        ("up", "moon"),
    ]
    assert operations() == ["twist"]


def test_of_several_backends_the_first_that_can_run_is_taken(twist):
    assert get("twist", "right").backend == "native"
    with pytest.raises(ChoiceError, match=r"'right' cannot run here: moon: no rocket"):
        get("twist", "right", backend="moon")
    with pytest.raises(ChoiceError, match=r"'up' cannot run here: moon: no rocket"):
        get("twist", "up")


def test_unknown_names_are_answered_with_the_known_ones(twist):
    with pytest.raises(ChoiceError, match="unknown operation 'turn': choose one of twist"):
        variants("turn")
    with pytest.raises(ChoiceError, match="unknown twist 'down': choose one of right, left, up"):
        get("twist", "down")
    with pytest.raises(ChoiceError, match="unknown backend of twist 'left' 'moon': choose one of native"):
        get("twist", "left", backend="moon")


def test_a_variant_below_the_level_asked_for_is_answered_with_those_that_meet_it(twist):
    assert check("twist", "right", "run").name == "right"
    assert check("twist", "left", "layout").name == "left"
    with pytest.raises(
        ChoiceError, match=r"promises 'run', less than the 'layout' asked for: cold.* left, up$"
    ):
        check("twist", "right", "layout")


def test_a_key_is_taken_once_and_guarantees_are_known(twist):
    with pytest.raises(ChoiceError, match="'left' \\(native\\) is registered already"):
        variant("twist", "left", backend="native", guarantee="run", why="again")
    with pytest.raises(ChoiceError, match="unknown guarantee 'maybe'"):
        variant("twist", "down", backend="native", guarantee="maybe", why="who knows")


def test_the_sums_on_offer_cover_every_level_and_give_their_reasons():
    sums = variants("sum")
    assert {v.guarantee for v in sums} == set(LEVELS)
    assert all(v.why and v.function.__doc__ for v in sums)
