"""Owners of blocks, and meshes that do not fit."""

import pytest

from miniapps.errors import UsageError
from miniapps.partition import models
from miniapps.partition.cuts.axes import evenly
from miniapps.partition.cuts.mesh import Mesh, carriers_of, parse, require_fits
from tests.miniapps.partition.graphs import planned

BATCH, HEADS = evenly("batch", 14, 7), evenly("heads", 4, 4)


def test_the_last_axis_of_the_mesh_is_the_fastest():
    mesh = parse("data=2,model=3", {"batch": "data", "heads": "model"}, 6)
    assert [mesh.coordinates(rank) for rank in (0, 2, 3)] == [
        {"model": 0, "data": 0},
        {"model": 2, "data": 0},
        {"model": 0, "data": 1},
    ]


@pytest.mark.parametrize("shuffle", [0, 3])
def test_every_block_has_one_owner_along_its_carrier(shuffle):
    mesh = Mesh((("data", 3), ("model", 2)), (("batch", "data"), ("heads", "model")), shuffle)
    for place in range(2):
        owned = [mesh.own(BATCH, rank) for rank in range(6) if mesh.coordinates(rank)["model"] == place]
        assert sorted(block for blocks in owned for block in blocks) == list(range(7))


def test_ranks_of_an_axis_in_zigzag_own_an_early_and_a_late_run_of_blocks():
    mesh = Mesh((("data", 3),), (("batch", "data"), ("heads", "data")), zigzag=("batch",))
    twelve = evenly("batch", 12, 12)
    assert [mesh.own(twelve, rank) for rank in range(3)] == [(0, 1, 10, 11), (2, 3, 8, 9), (4, 5, 6, 7)]
    assert sum(map(len, (mesh.own(BATCH, rank) for rank in range(3)))) == 7
    assert mesh.own(HEADS, 0) == (0, 1)  # neighbouring


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("batch", "'batch' is not NAME=VALUE; write for example --owners tokens=zigzag"),
        ("batch=late", "'late' is not contiguous or zigzag"),
        ("heads=zigzag", "the mesh carries no axis heads; it carries batch"),
        ("stage=zigzag", "--schedule says which ranks own the stages"),
        ("batch=zigzag,batch=zigzag", "batch is given twice"),
    ],
)
def test_owners_that_no_axis_can_have_are_refused(text, message):
    with pytest.raises(UsageError, match=message):
        parse("data=3,stage=1", {"batch": "data", "stage": "stage"}, 3, owners=text)


def test_an_axis_without_a_carrier_is_on_every_rank():
    assert Mesh((("data", 3),)).own(HEADS, 2) == (0, 1, 2, 3)


def test_a_reduction_is_among_the_ranks_that_differ_along_its_carriers_alone():
    mesh = Mesh((("data", 3), ("model", 2)), (("batch", "data"), ("heads", "model")))
    assert mesh.group(("batch",), 3) == (1, 3, 5) and mesh.group(("heads",), 3) == (2, 3)
    assert mesh.group(("batch", "heads"), 3) == tuple(range(6))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("data=2,model=2", "4 ranks, but the run has 3; start 4 ranks, or choose sizes whose product is 3"),
        ("data=3,data=1", "data is given twice"),
        ("data", "is not NAME=VALUE"),
        ("data=0", "^--mesh data=0: axis data: give a whole number from 1 to 10,000,000"),
        ("data=3,model=two", "^--mesh data=3,model=two: axis model: give a whole number"),
        ("data=-3", "a whole number"),
        ("data=²", "a whole number"),
        (f"data={'9' * 5000}", "a whole number"),
        ("", "no axis; write for example --mesh data=3"),
        ("data=1,model=3", r"model carries no axis.*choose model=1, .*--map .*\(carried now: batch=data\)"),
    ],
)
def test_what_is_no_mesh_for_a_run_is_refused(text, message):
    with pytest.raises(UsageError, match=message):
        parse(text, {"batch": "data"}, 3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rows=data", "no axis rows; the problem has batch, heads"),
        ("batch=model", "no axis model in the mesh; it has data"),
    ],
)
def test_a_map_between_what_is_not_there_is_refused(text, message):
    with pytest.raises(UsageError, match=message):
        carriers_of(text, "data=3", [BATCH, HEADS], {})


def test_without_a_map_the_recipe_says_what_carries_the_axes_that_are_there():
    recipe = {"batch": "data", "rows": "model"}
    assert carriers_of("", "data=3", [BATCH, HEADS], recipe) == {"batch": "data"}


def test_more_ranks_than_blocks_are_refused_with_both_remedies():
    _, plan = planned("mlp", "dp")
    with pytest.raises(UsageError, match=r"7 blocks.*at most 7, or more blocks \(--blocks batch=9\)"):
        require_fits(plan, Mesh((("data", 9),), (("batch", "data"),)))


def test_one_carrier_for_two_axes_of_a_value_is_refused():
    _, plan = planned("gpt", "dp+tp")
    with pytest.raises(UsageError, match="data carries batch and heads, but both cut the value"):
        require_fits(plan, Mesh((("data", 2),), (("batch", "data"), ("heads", "data"))))


@pytest.mark.parametrize("name", models.names())
def test_every_recipe_fits_a_mesh_of_twos(name):
    for recipe, carriers in models.model(name).RECIPES.items():
        axes = dict.fromkeys(carriers.values(), 2)
        require_fits(planned(name, recipe)[1], Mesh(tuple(axes.items()), tuple(carriers.items())))
