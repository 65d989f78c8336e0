"""`explain` for a module of the user's: what is shown, and a sentence for all that cannot be."""

import json
from pathlib import Path

import pytest

from miniapps.partition.commands import main
from tests.declared import check

FILE = str(Path(__file__).parents[2] / "mpi" / "programs" / "own_modules.py")
SIX, CLASSES = "float32[6,6]", "float32[6,6] int64[6]"
TOKENS = "int64[6,5] int64[6,5]"


def explained(capsys, name, *options):
    """The document of a module of FILE."""
    assert main(["explain", f"{FILE}:{name}", *options, "--json"]) == 0
    printed = capsys.readouterr().out
    found = json.loads(printed)
    check(found, "partition explain")
    return found


@pytest.mark.parametrize(
    "name, options, all_reduces",
    [
        (
            "Perceptron",
            ["--loss", "cross_entropy", "--inputs", CLASSES],
            4,
        ),  # two sums of batch norm, forward
        ("MADE", ["--loss", "cross_entropy", "--inputs", f"{FILE}:inputs"], 4),
        ("Encoder", ["--inputs", TOKENS], 2),
        ("Memory", ["--loss", "cross_entropy", "--inputs", "float32[6,4,6] int64[6]"], 2),
    ],
)
def test_data_parallel_cuts_the_first_dim_of_all_inputs(capsys, name, options, all_reduces):
    found = explained(capsys, name, *options)
    assert {
        key: value["cut"].split(" x ")[0] for key, value in found["values"].items() if "input" in key
    } == {
        "input.0": "batch:6",
        "input.1": "batch:6",
    }
    assert found["all_reduces"] >= all_reduces and found["notes"] == []


def test_tensor_parallel_pairs_layers_as_megatron_does(capsys):
    found = explained(capsys, "Encoder", "--inputs", TOKENS, "--recipe", "tp")
    layers = [f"encoder.layers.{k}" for k in range(2)]
    assert found["notes"] == [
        f"Pair: {layer}.{first} by rows, {layer}.{second} by columns."
        for layer in layers
        for first, second in (
            ("self_attn.in_proj_weight", "self_attn.out_proj.weight"),
            ("linear1.weight", "linear2.weight"),
        )
    ] + ["No pair: out.weight: its input comes through layer_norm of encoder.layers.1.norm2."]
    assert found["all_reduces"] == 8  # two per layer and pass
    # A third of q, k and v each, in whole heads.
    assert found["values"]["parameter.encoder.layers.0.self_attn.in_proj_weight"]["cut"].startswith(
        "3*features:4*4"
    )


def test_cut_norms_of_a_named_dim_gather_and_scatter_as_often_as_megatron(capsys):
    named = "int64[batch:6,tokens:5] int64[batch:6,tokens:5]"
    for recipe, mesh in (("tp+norms", "model=2"), ("dp+tp+norms", "data=3,model=2")):
        found = explained(capsys, "Encoder", "--inputs", named, "--recipe", recipe, "--mesh", mesh)
        calls = [
            (row["kind"], row["ranks"], row["calls"])
            for row in found["collectives"]
            if row["kind"] != "all-reduce"
        ]
        assert sorted(calls) == [("all-gather", 2, 8), ("reduce-scatter", 2, 8)]


def test_the_middle_of_three_layers_pairs_with_the_first(capsys):
    options = ["--loss", "cross_entropy", "--inputs", CLASSES, "--recipe", "dp+tp"]
    found = explained(capsys, "Perceptron", *options)
    assert found["notes"] == [
        "Pair: net.0.weight by rows, net.3.weight by columns.",
        "No pair: net.5.weight: its input comes from net.3.weight, the second of a pair.",
    ]


def test_stages_run_over_the_longest_list_of_equal_layers_or_over_named_ones(capsys):
    options = ["--inputs", TOKENS, "--recipe", "pp", "--mesh", "stage=2", "--micro-batches", "2"]
    found = explained(capsys, "Encoder", *options)
    assert found["notes"] == ["Layers of the stages: encoder.layers.0, encoder.layers.1."]
    assert found["pipeline"]["micro_batches"] == found["pipeline"]["stages"] == 2
    assert {row["kind"] for row in found["collectives"]} == {"send"}
    options += ["--layers", "embed,encoder.layers.0,encoder.layers.1,out", "--blocks", "stage=3"]
    assert explained(capsys, "Encoder", *options)["pipeline"]["stages"] == 3


def test_named_dims_are_axes(capsys):
    found = explained(
        capsys, "ResNet", "--loss", "cross_entropy", "--recipe", "spatial", "--inputs",
        "float32[batch:2,3,rows:32,32] int64[batch:2]",
    )  # fmt: skip
    assert found["values"]["input.0"]["cut"] == "2 x 3 x rows:32 x 32"
    assert "halo" in {row["kind"] for row in found["collectives"]}


def test_what_runs_whole_has_its_module_and_share(capsys):
    found = explained(capsys, "Spectral", "--loss", "cross_entropy", "--inputs", CLASSES)
    (row,) = [row for row in found["uncut"] if row["operation"] == "special_i0e"]
    assert row["module"] == "a" and row["whole"] and "no rule for aten.special_i0e" in row["why"]
    assert row["flops"] == 0


def test_whole_products_are_counted(capsys):
    options = ["--loss", "cross_entropy", "--inputs", CLASSES, "--recipe", "tp", "--quiet"]
    assert main(["explain", f"{FILE}:Perceptron", *options]) == 0
    # Of (6 x 16 + 16 x 16 + 16 x 4) FLOPs forward, and twice that backward without the inputs' gradient.
    share = 100 * 3 * 16 * 4 / (2 * 6 * 16 + 3 * 16 * 16 + 3 * 16 * 4)
    assert f"{share:.2g} % of the FLOPs run whole on every rank." in capsys.readouterr().out


def test_prints_of_the_user_stay_out_of_the_document(capsys):
    assert main(["explain", f"{FILE}:Printing", "--inputs", SIX, "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["ranks"] == 2 and "forward" in err


MEAN = ("--loss", "mean", "--inputs", SIX)
REFUSED = [
    ("missing.py:Model", ("--inputs", SIX), "there is no file missing.py"),
    (FILE, ("--inputs", SIX), "write FILE.py:NAME"),
    (f"{FILE}:Absent", ("--inputs", SIX), "has no 'Absent'; it has Residual"),
    ("no_such_package:Model", ("--inputs", SIX), "ModuleNotFoundError: No module named 'no_such_package'"),
    ("Needy", ("--inputs", SIX), r"needs arguments (width): name a function without arguments"),
    ("Failing", ("--inputs", SIX), "own_modules.py, line"),
    ("nothing", ("--inputs", SIX), "returns a NoneType: it must return a torch.nn.Module"),
    ("TOKENS", ("--inputs", SIX), "has no 'TOKENS'"),
    ("Refused", (), "give its inputs"),
    (
        "Refused",
        ("--inputs", SIX),
        "returns float32[6, 4], which is no scalar loss: return a scalar, or give --loss",
    ),
    ("Refused", ("--loss", "mse", "--inputs", SIX), "the last input is the target"),
    ("Refused", ("--loss", "mse", "--inputs", "float32[6,6] float32[6]"), "have one shape"),
    ("Refused", ("--loss", "cross_entropy", "--inputs", "float32[6,6] int64[5]"), "the shapes must agree"),
    ("Refused", ("--loss", "mean", "--inputs", "float32[6,5]"), "torch refuses an operation of the module"),
    ("Refused", ("--loss", "mean", "--inputs", CLASSES), "forward(x) does not take 2 inputs"),
    ("Refused", ("--inputs", "float32[6 6]"), "'6 6' is not a size"),
    ("Refused", ("--inputs", "float8[6]"), "unknown type float8"),
    ("Refused", ("--inputs", "floats"), "is not TYPE[SIZE,...]"),
    ("Refused", ("--inputs", f"{FILE}:wrong_inputs"), "input 0 is dict"),
    ("Refused", ("--inputs", f"{FILE}:needy_inputs"), "needs arguments (n)"),
    ("Refused", ("--inputs", "float32[batch:6,batch:6]"), "the axis batch twice"),
    ("Refused", ("--inputs", "float32[batch:6,6] int64[batch:5]"), "has 6 and 5 elements"),
    ("Refused", ("--inputs", "float32[99999999999,99999999999]"), "needs too much memory"),
    ("Refused", (*MEAN, "--recipe", "tp"), "layer.weight: its input comes from input 0"),
    ("Refused", (*MEAN, "--recipe", "spatial"), "name the dims to cut in --inputs"),
    (
        "Encoder",
        ("--inputs", TOKENS, "--recipe", "tp+norms"),
        "name one dim beside batch in --inputs, as in int64[batch:8,tokens:16]; this module has dp, tp",
    ),
    (
        "Encoder",
        ("--inputs", "int64[6,tokens:5] int64[6,tokens:5]", "--recipe", "dp+tp"),
        "no input has a dim batch",
    ),
    ("Refused", ("--inputs", "float32[norms:6,6]"), "norms"),
    ("Refused", (*MEAN, "--recipe", "expert"), "unknown recipe 'expert'"),
    ("Refused", (*MEAN, "--size", "width=3"), "belongs to models of this package"),
    ("Refused", (*MEAN, "--mesh", "data=7"), "has 6 blocks"),
    ("Refused", (*MEAN, "--recipe", "pp"), "it has no nn.Sequential and no nn.ModuleList"),
    (
        "Perceptron",
        ("--loss", "cross_entropy", "--inputs", CLASSES, "--recipe", "dp+pp"),
        "not 2 or more equal layers",
    ),
    (
        "Encoder",
        ("--inputs", TOKENS, "--recipe", "pp", "--layers", "coder"),
        "has no submodule 'coder'; it has embed",
    ),
    ("Encoder", ("--inputs", TOKENS, "--recipe", "pp", "--layers", "out"), "needs 2 layers with parameters"),
    (
        "Encoder",
        ("--inputs", TOKENS, "--recipe", "pp", "--layers", "encoder,encoder.layers.0"),
        "is inside encoder",
    ),
    (
        "Encoder",
        ("--inputs", TOKENS, "--recipe", "pp", "--micro-batches", "4"),
        "no batch of a multiple of 4",
    ),
    ("Refused", (*MEAN, "--micro-batches", "0"), "give a number of 1 or more"),
    ("mlp", ("--micro-batches", "2"), "write --size micro_batches=2"),
    ("mlp", ("--layers", "a"), "belongs to a module of yours"),
    ("Broken", ("--inputs", SIX), "the module raises KeyError when it is called"),
    ("Branching", ("--inputs", SIX), "a branch that depends on values"),
    ("Counting", ("--inputs", SIX), "changes its attributes calls"),
    ("Drawing", ("--inputs", SIX), "random numbers of Python's random"),
    ("Quitting", ("--inputs", SIX), "calls exit(3)"),
    ("cyclic", ("--inputs", SIX), "module inner.outer is the whole module, which contains it"),
    ("constant", ("--inputs", SIX), "depends on no parameter"),
    ("mlp", ("--inputs", SIX), "belongs to a module of yours"),
]


@pytest.mark.parametrize("name, options, message", REFUSED, ids=[f"{n}-{m[:20]}" for n, _, m in REFUSED])
def test_what_cannot_be_planned_is_a_sentence(capsys, name, options, message):
    model = name if ":" in name or name in ("mlp", FILE) else f"{FILE}:{name}"
    assert main(["explain", model, *options]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    "text, message",
    [
        ("x = = 1", "line 1"),
        ("import nosuchthing", "No module named 'nosuchthing'"),
        ("raise RuntimeError('at import')", "raises RuntimeError"),
        ("raise SystemExit(1)", "calls exit(1)"),
        ("Model = 3", "is an int: name a torch.nn.Module"),
    ],
)
def test_a_file_that_cannot_be_imported_is_named(capsys, tmp_path, text, message):
    (tmp_path / "mine.py").write_text(text + "\n")
    assert main(["explain", f"{tmp_path / 'mine.py'}:Model", "--inputs", SIX]) == 2
    assert message in capsys.readouterr().err


def test_a_module_of_a_package_in_the_current_directory(capsys, tmp_path, monkeypatch):
    (tmp_path / "sub_own").mkdir()
    (tmp_path / "sub_own" / "nets.py").write_text(Path(FILE).read_text())
    monkeypatch.chdir(tmp_path)
    assert main(["explain", "sub_own.nets:Perceptron", *MEAN, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["axes"][0]["axis"] == "batch"
