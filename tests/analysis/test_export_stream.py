"""Exports go from traces to files a rank at a time: the same bytes, nothing half written under the final name."""

import hashlib
import weakref

import pytest

from analysis.__main__ import main
from analysis.export import chakra, perfetto
from analysis.export.output import new_directory, new_file
from miniapps.trace import TraceError
from tests.analysis.export_runs import EVENTS, hostile_run, overlapping_run, part_of, solver_run

# Of all files, recorded when all events were in memory at once.
RECORDED = {
    "solver": "3dde23124ee2aa85", "part": "45de9e53a0979713", "hostile": "3a362070f0830460",
    "overlapping": "a99936f8450cdbe8",
}  # fmt: skip


@pytest.fixture
def run(tmp_path):
    """A run of the solver on three ranks."""
    return solver_run(tmp_path / "solver" / "run", size=3, partners={"halo": [0, 2]})


def test_bytes_are_those_of_an_export_that_holds_everything(tmp_path, run):
    parts = {
        "solver": part_of(run),
        "part": part_of(run, ranks=[range(1, 3)], begin=20_000, end=500_000),
        "hostile": part_of(hostile_run(tmp_path / "hostile" / "run")),
        "overlapping": part_of(overlapping_run(tmp_path / "overlapping" / "run")),
    }
    for name, part in parts.items():
        place = tmp_path / f"out-{name}"
        place.mkdir()
        perfetto.write(part, place / "o.json")
        chakra.write(part, place / "o")
        hasher = hashlib.sha256()
        for path in sorted(place.iterdir()):
            hasher.update(path.name.encode() + path.read_bytes())
        assert hasher.hexdigest()[:16] == RECORDED[name], name


def test_a_rank_leaves_memory_when_the_next_one_comes(run):
    held = []
    for rank, own in part_of(run).ranks():
        assert [one() for one in held] == [None] * rank
        held.append(weakref.ref(own))
        del own


def test_a_trace_that_changes_meanwhile_is_said(run):
    part = part_of(run)
    part.counts[1] += 1
    with pytest.raises(
        TraceError, match="the trace of rank 1 changed while it was exported; export the run when"
    ):
        list(part.ranks())


@pytest.mark.parametrize("new, write", [
    (new_file, lambda inside: inside.write(b"some")), (new_directory, lambda inside: (inside / "a").touch()),
])  # fmt: skip
def test_a_file_has_its_name_when_it_is_whole(tmp_path, new, write):
    out = tmp_path / "out"
    with new(out) as inside:
        write(inside)
        assert [path.name for path in tmp_path.iterdir()] == ["out.part"]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    with pytest.raises(FileExistsError), new(out) as inside:
        write(inside)
    with pytest.raises(KeyboardInterrupt), new(tmp_path / "other") as inside:
        write(inside)
        raise KeyboardInterrupt
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_what_a_killed_export_left_is_named(tmp_path, run, capsys):
    (tmp_path / "out.json.part").touch()
    assert main(["export", "perfetto", str(run), "-o", str(tmp_path / "out.json")]) == 2
    assert (
        "out.json.part exists: an export writes it, or one was killed; then remove it"
        in capsys.readouterr().err
    )
    assert not (tmp_path / "out.json").exists()


def test_much_is_said_before_it_is_written(tmp_path, run, capsys, monkeypatch):
    monkeypatch.setattr("analysis.commands.export.TOLD_FROM", 0)
    out = tmp_path / "out.json"
    assert main(["export", "perfetto", str(run), "-o", str(out), "--steps", "1"]) == 0
    assert f"{out}: {EVENTS} events, about 0.0 GB" in capsys.readouterr().err
    assert main(["export", "perfetto", str(run), "-o", str(tmp_path / "quiet.json"), "--quiet"]) == 0
    assert capsys.readouterr().err == ""
