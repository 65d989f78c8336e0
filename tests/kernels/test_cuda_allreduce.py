"""All-reduces of arrays on a device: the bits of the host, on one rank and without a launcher."""

import json

import pytest

from miniapps.system.environment import no_cuda
from tests.launch import ROOT, run_python

pytestmark = [pytest.mark.cuda, pytest.mark.skipif(bool(no_cuda()), reason=no_cuda() or "")]


def test_arrays_on_the_device_have_the_bits_of_the_host():
    for needed in ("from mpi4py import MPI", "import kernels._native"):
        run = run_python(["-c", needed])
        if run.returncode:
            pytest.skip(f"{needed}: {run.stderr.strip().splitlines()[-1]}")
    run = run_python([str(ROOT / "tests" / "mpi" / "programs" / "allreduce_device.py")], timeout=200)
    assert run.returncode == 0, run.stdout + run.stderr
    report = json.loads(run.stdout)
    assert len(report) > 5 and not any(report.values()), report
