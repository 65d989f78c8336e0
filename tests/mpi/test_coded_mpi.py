"""Reductions over wires that lose something, under real MPI libraries: the bits are the simulator's."""

import pytest

from miniapps.trace import rank_files
from miniapps.trace import read as trace_of
from tests.mpi.sectioned import layouts, reported, sections
from tests.ranks import on_ranks

PROGRAM = "coded.py"


@layouts(1, 3, slow=(2, 8))
@pytest.mark.parametrize("section", sections(PROGRAM))
def test_section(section, library, size):
    assert reported(PROGRAM, library, size)[section] == []


def test_emulated_links_change_times_and_no_bits(tmp_path):
    small = [
        "-m",
        "miniapps.training",
        "--data",
        "blobs",
        "--steps",
        "3",
        "--evaluate-every",
        "0",
        "--no-progress",
    ]
    layout = ["--guarantee", "layout", "--wire", "fp8"]

    def ran(name, *options):
        run = on_ranks(2, [*small, *layout, *options, "--out", tmp_path / name])
        assert run.returncode == 0, run.stdout + run.stderr
        trace = trace_of(rank_files(tmp_path / name)[0])
        events, number = trace.tables["events"], trace.names.index("allreduce.bucket0")
        took = (events["end"] - events["start"])[events["name"] == number]
        return next(
            line for line in run.stdout.splitlines() if line.startswith("FINGERPRINT")
        ), took.min() / 1e9

    bits, _ = ran("plain")
    slow_bits, took = ran("slow", "--links", "rate=1e6,latency=0.01")
    assert slow_bits == bits
    assert took >= 0.02  # two rounds of messages and one that agrees on a unit
    for links, message in (("rate=fast", "rate=BYTES_PER_SECOND"), ("/nowhere", "cannot be read")):
        refused = on_ranks(2, [*small, *layout, "--links", links, "--out", tmp_path / "none"])
        assert refused.returncode == 2 and message in refused.stderr and not (tmp_path / "none").exists()
    library = on_ranks(2, [*small, "--links", "rate=1e6", "--out", tmp_path / "library"])
    assert library.returncode == 0, library.stderr
