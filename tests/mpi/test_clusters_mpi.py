"""k-means keeps its guarantees under real MPI, its decisions too, and orders of arrival are replayed."""

import re

import numpy as np
import pytest

from benchmarks.apps.decisions import agreement
from miniapps.trace import read
from tests.mpi.sectioned import layouts
from tests.ranks import on_ranks

SMALL = ["--seed", "3", "--set", "clusters.block=32", "--no-progress"]


def clusters(n, out, *options, library="mpich"):
    """The fingerprint of a run on n ranks."""
    run = on_ranks(n, ["-m", "miniapps.clusters", *SMALL, *options, "--out", str(out)], library, timeout=240)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "VERIFICATION: PASS" in run.stdout
    (fingerprint,) = re.findall(r"FINGERPRINT state=(\w+)", run.stdout)
    return fingerprint


def decided(out, ranks):
    """{(name, block): outcome} over all ranks."""
    found = {}
    for rank in range(ranks):
        trace = read(out / f"rank-{rank:05d}.h5")
        columns = [trace.tables["values"][key].tolist() for key in ("name", "block", "value")]
        for name, block, value in zip(*columns, strict=True):
            if trace.names[name].startswith(("decision:", "margin:")):
                assert (trace.names[name], block) not in found  # one owner each
                found[trace.names[name], block] = value
    return found


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """(fingerprint, decisions) on one rank under `layout`."""
    out = tmp_path_factory.mktemp("alone") / "run"
    return clusters(1, out, "--guarantee", "layout"), decided(out, 1)


@layouts(3, slow=(2, 4, 8), others=(2,), slow_others=(3,))
def test_one_hash_and_one_set_of_decisions_on_any_number_of_ranks(tmp_path, alone, library, size):
    options = ["--guarantee", "layout", "--shuffle-blocks", "5"]
    assert clusters(size, tmp_path / "run", *options, library=library) == alone[0]
    assert decided(tmp_path / "run", size) == alone[1]


def test_orders_of_arrival_are_replayed(tmp_path):
    first = clusters(3, tmp_path / "a", "--allreduce", "arrival")
    again = clusters(3, tmp_path / "b", "--allreduce", "arrival", "--replay", str(tmp_path / "a"))
    assert first == again and decided(tmp_path / "a", 3) == decided(tmp_path / "b", 3)


def test_orders_of_arrival_are_between_the_order_of_ranks_and_its_reverse(tmp_path):
    clusters(4, tmp_path / "run", "--allreduce", "arrival")
    orders = read(tmp_path / "run" / "rank-00000.h5").tables["order"]["ranks"]
    assert (np.sort(orders, axis=1) == np.arange(4)).all() and (orders[:, 0] == 0).all()
    (tau,) = agreement([tmp_path / "run"])
    assert -1 <= tau <= 1


def test_the_bits_of_any_processor(tmp_path):
    options = ["--guarantee", "layout", "--processor", "any"]
    assert clusters(2, tmp_path / "b", *options) == clusters(1, tmp_path / "a", *options)
