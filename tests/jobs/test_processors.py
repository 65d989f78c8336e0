"""The factor `cpu`: the same tasks with libraries held to older processors, under real mpirun."""

import json

import pytest

from jobs import processors
from jobs.__main__ import main
from jobs.campaign import CampaignError, read
from jobs.plan import plan
from jobs.state import survey
from jobs.tables import plan_text
from miniapps.system import environment
from miniapps.system.layers import PROCESSORS
from tests.jobs.campaigns import SMALL, write

COUPLED = """\
name = "cpus"
out = "out"

[defaults]
time = "00:02:00"

[[runs]]
app = "coupled"
ranks = [2]
guarantee = "layout"
cpu = ["this", "Nehalem"]
options = { "time.steps" = 2, "grid.nx" = 64, "grid.ny" = 64 }
"""


def of(folder, cpu):
    return plan(read(write(folder, SMALL.replace("ranks = [2]", f"ranks = [2]\ncpu = {json.dumps(cpu)}"))))


def test_processors_are_crossed_with_the_other_factors_and_change_no_other_task(tmp_path):
    before = {task.id for task in plan(read(write(tmp_path))).tasks}
    planned = of(tmp_path, ["this", "Haswell"])
    assert {(task.cpu, dict(task.options)["run.guarantee"]) for task in planned.tasks} == {
        (cpu, level) for cpu in ("this", "Haswell") for level in ("none", "layout")
    }
    assert all(
        task.cpu in task.id and not any("cpu" in word for word in task.arguments) for task in planned.tasks
    )
    text = plan_text(planned, survey(planned.campaign.out, planned.tasks), False, None)
    assert "cpu=Haswell" in text and "cpu=this" in text
    assert {task.cpu for task in plan(read(write(tmp_path))).tasks} == {"this"}
    assert {task.id for task in plan(read(write(tmp_path))).tasks} == before


@pytest.mark.parametrize("cpu", ["Haswel", 3, [], ["this", "this"], [["this"]]])
def test_processors_that_are_not_known_are_refused_with_those_that_are(tmp_path, cpu):
    with pytest.raises(CampaignError, match=r"cpu .*Nehalem|cpu must be a processor"):
        of(tmp_path, cpu)


def test_settings_hold_every_layer_that_has_some(monkeypatch):
    assert processors.held("this") == []
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.malloc.check=1")
    words = processors.held("Nehalem")
    assert words[0] == "env" and {"ATEN_CPU_CAPABILITY=default", "OPENBLAS_CORETYPE=Nehalem"} < set(words)
    tunables = next(word for word in words if word.startswith("GLIBC_TUNABLES"))
    assert "glibc.malloc.check=1:" in tunables and "-AVX2" in tunables


def test_a_newer_processor_than_this_one_is_refused_before_anything_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(environment, "instructions", lambda: "x86-64-v3")
    processors.require(of(tmp_path, ["this", "Haswell", "Zen 2"]).tasks)
    with pytest.raises(CampaignError, match=r"'Skylake-X', line 7: this processor .x86-64-v3. lacks"):
        processors.require(of(tmp_path, "Skylake-X").tasks)
    assert {processor.needs for processor in PROCESSORS} <= {2, 3, 4}


def test_held_runs_record_their_settings_and_another_state(tmp_path, capsys):
    path = write(tmp_path, COUPLED)
    assert main(["local", str(path), "--quiet"]) == 0, capsys.readouterr()
    found = (tmp_path / "out").glob("*/result.json")
    results = {file.parent.name: json.loads(file.read_text()) for file in found}
    this, older = (next(r for name, r in results.items() if cpu in name) for cpu in ("-this-", "-Nehalem-"))
    assert this["fingerprints"] != older["fingerprints"]
    assert this["kinds"] == older["kinds"] == []
