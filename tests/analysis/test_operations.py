"""The remarks on the operation of a watched module: findings of audits, and what ends the difference."""

import json

import pytest

from analysis.__main__ import main
from analysis.divergence.classes import Operation
from analysis.load.frames import load
from analysis.operations import FIRST, MODULES, PARAMETERS, audited, remarks_on
from miniapps.trace import Tracer
from miniapps.trace.records import GRADIENT, LOSS, OUTPUT, OUTPUT_GRADIENT
from tests.analysis.audits_runs import case, change, statement, write_audit
from tests.analysis.synthetic import attributes

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

WEIGHT = Operation("LayerNorm", "backward", "weight", "float32")


def threads(parts, replaced=None, in_mode=3, **more):
    """A case of layer_norm backward whose `parts` differ with the number of threads."""
    own = case("layer_norm", "backward", threads=3, **more)
    own["audit"]["threads"]["parts"] = parts
    own["audit"]["mode"]["threads"] = change(in_mode)
    if replaced is not None:
        own["audit"]["replaced"] = replaced
    return own


def told(tmp_path, *cases, operation=WEIGHT, **more):
    frames = load([write_audit(tmp_path / "audit", cases, **more)])
    environment = json.loads(frames.runs["environment"].iloc[0])
    return dict(remarks_on(operation, audited(frames), environment))


def test_the_audit_says_on_what_the_gradient_depends_and_what_ends_it(tmp_path):
    lines = told(
        tmp_path, threads(["gradient of argument 1"], {"calls": {}}), threads(["gradient of argument 1"])
    )
    assert lines["operation"].startswith(
        "layer_norm, gradient of its weight: differs with the number of threads (2 of 2 cases); torch's documentation "
        "says nothing; audit of 2026-01-01 (audit), "
    )
    assert lines["operation"].endswith("this machine and torch")
    assert lines["ends with"] == (
        "one number of threads in both runs: torch.set_num_threads(N); does not end with "
        "torch.use_deterministic_algorithms(True)"
    )


def test_a_difference_in_another_part_of_the_result_does_not_count(tmp_path):
    lines = told(tmp_path, threads(["gradient of argument 0"]))
    assert "no difference seen from run to run, with the number of threads in 1 case" in lines["operation"]
    assert "ends with" not in lines


def test_settings_and_operators_that_repeat_the_bits_in_the_audit_end_the_difference(tmp_path):
    ours = {"calls": {"sum": 1}, "runs": change(), "threads": change()}
    lines = told(tmp_path, threads([], ours, in_mode=1))
    assert lines["ends with"] == (
        "one number of threads in both runs: torch.set_num_threads(N) or torch.use_deterministic_algorithms(True) or "
        "fpna.torch.replaced()"
    )


def test_runs_that_race_need_one_thread_and_the_mode_may_throw(tmp_path):
    racing = case("layer_norm", "backward", runs=3, throws="no deterministic implementation")
    lines = told(tmp_path, racing, statements=[statement("layer_norm", "throws", backward=True)])
    assert (
        "differs from run to run (1 of 1 case); torch's documentation says: torch.layer_norm"
        in lines["operation"]
    )
    assert lines["ends with"] == (
        "one thread: torch.set_num_threads(1); does not end with torch.use_deterministic_algorithms(True)"
    )


def test_products_end_with_the_contract(tmp_path):
    lines = told(tmp_path, case("linear", batch=2), operation=Operation("Linear", "forward"))
    assert (
        lines["ends with"]
        == "one size of the batch in both runs or kernels.contract.matmul, for any threads and batch"
    )


def test_without_an_audit_the_command_is_named(tmp_path):
    ((_, line),) = remarks_on(WEIGHT, [], {})
    assert "fpna operations --operation layer_norm --cases 0 --out AUDIT, and add --audit AUDIT" in line
    ((_, line),) = remarks_on(Operation("Residual", "forward"), [], {})
    assert "Residual is no audited class" in line and "fpna operations FILE.py:FUNCTION" in line


def test_an_audit_of_another_machine_is_named_and_comes_last(tmp_path):
    frames = load([write_audit(tmp_path / "audit", [threads([])])])
    (own,) = audited(frames)
    line = dict(remarks_on(WEIGHT, [own], own.environment | {"cpu": "another"}))["operation"]
    assert line.endswith("another environment than the run: cpu")


def test_every_module_has_a_registered_operation_whose_arguments_are_its_parameters():
    from kernels.torchops.cases import find
    from kernels.torchops.cases.inputs import Draw

    made = {
        "Linear": lambda inner, outer, **of: nn.Linear(inner, outer), "LayerNorm": lambda width: nn.LayerNorm(width),
        "BatchNorm2d": lambda channels: nn.BatchNorm2d(channels),
        "GroupNorm": lambda channels: nn.GroupNorm(4, channels),
        "Conv2d": lambda channels, **of: nn.Conv2d(channels, 16, 3),
        "Conv1d": lambda channels: nn.Conv1d(channels, 16, 3),
        "ConvTranspose2d": lambda channels: nn.ConvTranspose2d(channels, 16, 3),
        "Embedding": lambda words, tokens: nn.Embedding(words, 64), "GRU": lambda hidden: nn.GRU(24, hidden),
    }  # fmt: skip
    for module, name in MODULES.items():
        assert hasattr(nn, module) or module == "NonDynamicallyQuantizableLinear"
        own = find(name).cases()[0]
        if module in made:
            given = find(name).build(Draw("any", 1), **own.factors).tensors
            for parameter, tensor in made[module](**own.factors).named_parameters():
                place = PARAMETERS[parameter] - (name in FIRST)
                assert tuple(tensor.shape) == given[place].shape, (module, parameter)


def watched(out, differs):
    """A run of a watched model with a record per name, in the order of computation; that of `differs` is another."""
    names = [f"{OUTPUT}2 (LayerNorm)", f"{OUTPUT}3 (Linear)", LOSS, f"{OUTPUT_GRADIENT}3 (Linear)",
             f"{GRADIENT}3.weight", f"{OUTPUT_GRADIENT}2 (LayerNorm)", f"{GRADIENT}2.weight"]  # fmt: skip
    out.mkdir(parents=True)
    own = attributes(
        0,
        1,
        "none",
        "",
        run_id=str(out),
        config={"recording": {}},
        options={"recording.of_ranks": {"of_ranks": True}},
    )
    with Tracer(out / "rank-00000.h5", own, size=1) as tracer:
        tracer.at(0, 1)
        for name in names:
            tracer.fingerprint(f"{name} by rank", 0, bytes([name == differs] * 16))


@pytest.mark.parametrize(
    "differs, title",
    [
        (f"{OUTPUT}3 (Linear)", "linear, forward"),
        (f"{GRADIENT}2.weight", "layer_norm, gradient of its weight"),
        (f"{OUTPUT_GRADIENT}2 (LayerNorm)", "linear, gradient of its input"),
        (f"{OUTPUT_GRADIENT}3 (Linear)", "it is in no module"),
        (LOSS, "it is in no module"),
    ],
)
def test_divergence_names_the_operation_of_the_first_difference(tmp_path, capsys, differs, title):
    watched(tmp_path / "a", "")
    watched(tmp_path / "b", differs)
    assert main(["divergence", str(tmp_path / "a"), str(tmp_path / "b")]) == 3
    assert f"  operation      {title}" in capsys.readouterr().out


def test_audits_beside_the_runs_are_found_and_given_ones_must_have_a_certificate(tmp_path, capsys):
    watched(tmp_path / "a", "")
    watched(tmp_path / "b", f"{GRADIENT}2.weight")
    write_audit(tmp_path / "audit", [threads(["gradient of argument 1"])])
    runs = [str(tmp_path / name) for name in ("a", "b")]
    assert main(["divergence", *runs]) == 3
    assert (
        "gradient of its weight: differs with the number of threads (1 of 1 case)" in capsys.readouterr().out
    )
    assert main(["divergence", *runs, "--audit", runs[0]]) == 2
    assert (
        f"--audit {runs[0]}: no run of `operations`, which writes certificate.json" in capsys.readouterr().err
    )
    file = tmp_path / "audit" / "certificate.json"
    file.write_text(file.read_text().replace('"seed"', '"sead"'))
    assert main(["divergence", *runs]) == 3  # a damaged one that nobody asked for
    assert "no audit of it is given" in capsys.readouterr().out
    assert main(["divergence", *runs, "--audit", str(tmp_path / "audit")]) == 2
    assert "damaged" in capsys.readouterr().err
