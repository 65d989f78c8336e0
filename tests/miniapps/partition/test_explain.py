"""`explain`: counts of bytes checked by hand, text, JSON, errors."""

import json
from pathlib import Path

import pytest

from miniapps.partition import models
from miniapps.partition.commands import main
from miniapps.partition.cuts.mesh import Mesh
from miniapps.partition.showing.explain import as_text, explain
from tests.declared import check
from tests.miniapps.partition.graphs import planned


def explained(name, recipe, *sizes):
    carriers = models.model(name).RECIPES[recipe]
    axes = dict.fromkeys(carriers.values())
    mesh = Mesh(tuple(zip(axes, sizes, strict=True)), tuple(carriers.items()))
    return explain(planned(name, recipe)[1], mesh)


def collectives(found):
    return {(c["kind"], *c["axes"]): (c["calls"], c["bytes"]) for c in found["collectives"]}


def test_data_parallel_sends_each_gradient_twice_as_an_all_reduce_does():
    """Two ranks: each sends half of every sum and gets the other half; the count of targets is 8 bytes."""
    found = explained("gpt", "dp", 2)
    parameters = sum(s.tensor.shape[0] * (s.tensor.shape[1:] or (1,))[0] for s in planned("gpt", "dp")[0].sources
                     if s.kind == "parameter")  # fmt: skip
    assert found["all_reduces"] == 2
    assert collectives(found) == {("all-reduce", "batch"): (2, 2 * (4 * (parameters + 1) + 8))}


def test_tensor_parallel_has_at_most_nine_all_reduces():
    """Each of the activations: 14 x 16 tokens of 64 numbers."""
    found = explained("gpt", "tp", 2)
    assert found["all_reduces"] == 8 and found["bytes"] == 8 * 2 * 4 * 14 * 16 * 64


def test_zero_sends_what_an_all_reduce_sends():
    """The count of targets and the loss, all gradients scattered, all parameters gathered: four collectives."""
    whole, stored = explained("gpt", "dp", 2), explained("gpt", "zero", 2)
    assert stored["bytes"] == whole["bytes"] and stored["all_reduces"] == 3
    calls = {kind: calls for (kind, *_), (calls, _) in collectives(stored).items()}
    assert calls == {"all-reduce": 2, "reduce-scatter": 1, "all-gather": 1}


def test_halos_are_counted_with_their_corners():
    """5 x 5 on 24 x 16, cut in the middle both ways: two rows, two columns, four corners; 4 samples of 2 channels."""
    found = explained("unet", "spatial", 2, 2)
    (first,) = [row for row in found["steps"] if row["node"] == "convolution" and row["sends"]]
    assert first["bytes"] == 4 * 4 * 2 * 4 * (2 * 8 + 2 * 12 + 4)


def test_on_one_rank_nothing_travels():
    found = explained("unet", "dp", 1)
    assert found["bytes"] == 0 and "The ranks send nothing." in as_text(found, "unet")


def test_the_problem_does_not_depend_on_the_mesh():
    assert len({explained("mlp", "dp", size)["problem"] for size in (1, 2, 3, 7)}) == 1


def test_the_page_of_a_small_model(capsys):
    assert main(["explain", "mlp", "--mesh", "data=3", "--quiet"]) == 0
    printed = capsys.readouterr().out
    assert "mesh data=3: 3 ranks" in printed
    assert "batch        14       7  data=3      2 to 3" in printed
    assert "A step has 2 all-reduces;" in printed
    assert "Every operation is cut like its operands." in printed


def test_the_documented_page_is_what_is_printed(capsys):
    """But for the hash, in which torch's version shows."""
    page = (Path(__file__).parents[3] / "docs" / "explanation" / "partition.md").read_text()
    command, _, rest = page.partition("    $ python -m miniapps.partition ")[2].partition("\n")
    main(command.split())
    printed = capsys.readouterr().out.splitlines()
    shown = [line.removeprefix("    ") for line in rest.splitlines()[: len(printed)]]
    assert shown[0].rpartition(" ")[0] == printed[0].rpartition(" ")[0] and shown[1:] == printed[1:]


def test_json_has_the_cut_of_every_value(capsys):
    assert main(["explain", "moe", "--recipe", "expert", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    check(found, "partition explain")
    assert found["values"]["parameter.up"]["cut"] == "experts:4 x 32 x 64"
    assert found["reasons"]["bmm_1"] == "not cut by batch: cut by experts instead"
    assert {row["node"] for row in found["steps"] if row["sends"] == "all-to-all"} == {
        "bmm_1",
        "bmm_3",
        "bmm_6",
        "bmm_10",
    }


def test_calls_are_those_of_one_rank(capsys):
    argv = [
        "explain",
        "mlp",
        "--mesh",
        "data=2",
        "--size",
        "samples=12,batch=4,features=6,width=8",
        "--calls",
        "1",
    ]
    assert main([*argv, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    check(found, "partition explain")
    *rows, between = found["calls"]
    first = next(row for row in rows if row["kernel"] == "aten.mm.default")
    assert (first["operands"][0], first["results"], first["own"]) == (
        "float32[6, 6]",
        ["float32[6, 8]"],
        False,
    )
    assert first["bytes"] == first["calls"] * 4 * (6 * 6 + 6 * 8 + 6 * 8)
    assert (between["kernel"], between["operands"]) == ("", []) and between["calls"] > 0
    assert main([*argv, "--guarantee", "layout", "--quiet"]) == 0
    printed = capsys.readouterr().out
    assert "Rank 1 calls in a step, guarantee layout:" in printed and "(between kernels)" in printed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["mlp", "--mesh", "data=2", "--calls", "2"], "--calls 2: the mesh has ranks 0 to 1"),
        (["rnn"], "unknown model 'rnn'"),
        (["mlp", "--recipe", "expert"], "choose one of dp, tp, dp+tp, zero"),
        (["mlp", "--mesh", "data=9"], "at most 7"),
        (["mlp", "--axes", "rows"], "unknown axis of --axes 'rows'"),
        (["mlp", "--blocks", "batch=15"], "choose 1 to 14"),
        (["mlp", "--blocks", "rows=2"], "unknown axis of --blocks 'rows'"),
        (["mlp", "--size", "depth=2"], "unknown size 'depth'"),
        (["mlp", "--size", "width=wide"], "a whole number"),
        (["mlp", "--map", "batch=model"], "no axis model in the mesh"),
        (["mlp", "--mesh", ""], "no axis; write for example"),
        (["mlp", "--mesh", "data=2,other=10000000"], "other carries no axis"),
        (["mlp", "--mesh", "data=15"], "choose data of at most 7"),
        (["mlp", "--axes", "hidden"], "data carries no axis"),
        (["mlp", "--axes", "batch,,hidden"], "unknown axis of --axes ''"),
        (["mlp", "--blocks", "batch=²"], "a whole number from 1 to"),
        (["mlp", "--size", "width=0"], "a whole number from 1 to"),
        (["gpt", "--size", "heads=3"], "width = 64 is not a multiple of heads = 3"),
        (["unet", "--size", "height=25"], "height = 25: images are halved"),
        (["moe", "--size", "experts=1"], "choose 2 or more"),
        (["mlp", "--recipe", "dp+tp", "--map", "batch=data,hidden=data"], "data carries batch and hidden"),
        (
            [
                "gpt",
                "--recipe",
                "tp",
                "--map",
                "heads=data,ff=data",
                "--axes",
                "batch,heads,ff",
                "--mesh",
                "data",
            ],
            "NAME=VALUE",
        ),
    ],
)
def test_bad_options_end_with_what_can_be_chosen(arguments, message, capsys):
    assert main(["explain", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_recipes_with_the_same_axes_are_one_problem(capsys):
    problems = set()
    for recipe, mesh in ("dp", "data=3"), ("tp", "model=2"), ("dp+tp", "data=2,model=2"):
        main(["explain", "mlp", "--recipe", recipe, "--axes", "batch,hidden", "--mesh", mesh, "--json"])
        problems.add(json.loads(capsys.readouterr().out)["problem"])
    assert len(problems) == 1
