"""Bits of applications that own kernels compute are the same on every processor and every number of ranks.

Libraries choose instructions by processor, and settings make them choose those of older ones. Here one hash is asked of
each application: without settings, with all libraries held to the oldest, and on emulated processors.
"""

import json
import shutil
import sys

import pytest

from benchmarks.apps.settings import BASE, EVERYTHING, SETTINGS, judge, run
from tests.launch import run_command, run_mpi

COMMON = ["--guarantee", "layout", "--no-progress", "--log-level", "error"]
BOX = ["-m", "miniapps.solver", *COMMON, "--deck", "S", "--max-iterations", "30"]
DATA = ["-m", "miniapps.reductions", *COMMON, "--size", "20000", "--arrays", "1", "--samples", "2"]
DATA += [
    f"--variant={name}@native" for name in ("binned", "fixed-point", "exact")
]  # others have `run` at most
FLOW = ["-m", "miniapps.coupled", *COMMON, "--steps", "1"]
APPLICATIONS = {
    "coupled, physics": [*FLOW, "--closure", "physics"],
    "coupled, static network": [*FLOW, "--closure", "surrogate", "--inference", "static"],
    "solver, multigrid": [*BOX, "--preconditioner", "multigrid", "--right-side", "random"],
    "solver, chebyshev": [*BOX, "--method", "chebyshev", "--right-side", "random"],
    "reductions, lognormal": [*DATA, "--distribution", "lognormal"],
}
OWN = [
    "coupled, no closure",
    "coupled, physics",
    "coupled, surrogate, static",
    "solver, cg",
    "solver, cg, multigrid",
    "solver, gmres, manufactured",
    "solver, chebyshev",
    "reductions, own sums",
    "reductions, own dot products",
    "reductions, own sums, ill-conditioned",
]


def test_no_setting_of_any_library_changes_a_record_of_what_own_kernels_compute(tmp_path):
    """NumPy's dot product follows OpenBLAS, so that the settings are known to have been heard."""
    heard = "reductions, dot"
    run(tmp_path, [BASE, EVERYTHING], [*OWN, heard])
    rows = {row["case"]: row for row in judge(tmp_path, [BASE, EVERYTHING], [*OWN, heard])}
    assert {case: rows[case]["first"] for case in OWN if not rows[case]["equal"]} == {}
    assert all(rows[case]["compared"] for case in OWN)
    assert not rows[heard]["equal"] and "numpy" in rows[heard]["first"]


def hashes(out, ended):
    """The final hashes of a run."""
    result = out / "result.json"
    assert result.exists(), ended.stdout + ended.stderr
    return json.loads(result.read_text())["fingerprints"]


@pytest.mark.slow
@pytest.mark.parametrize("name", APPLICATIONS)
def test_one_hash_for_any_number_of_ranks_libraries_of_mpi_and_emulated_processors(name, tmp_path):
    argv, found = APPLICATIONS[name], {}

    def kept(what, of):
        out = tmp_path / str(len(found))
        found[what] = hashes(out, of([*argv, "--out", str(out)]))

    for ranks in (1, 2, 4):
        kept(f"{ranks} ranks", lambda given, ranks=ranks: run_mpi(ranks, given))
        kept(
            f"{ranks} ranks, held", lambda given, ranks=ranks: run_mpi(ranks, given, env=SETTINGS[EVERYTHING])
        )
    if shutil.which("qemu-x86_64"):
        for cpu in ("Nehalem", "Haswell", "EPYC-Rome"):
            machine = ["qemu-x86_64", "-cpu", cpu, sys.executable]
            kept(cpu, lambda given, machine=machine: run_command([*machine, *given], {}, 500, None))
    kept("2 ranks of Open MPI", lambda given: run_mpi(2, given, "openmpi"))
    assert len(set(map(tuple, found.values()))) == 1, found
