"""A Slurm for all tests of jobs that want one."""

import os
import tempfile
from pathlib import Path

import pytest

from jobs.cluster import cluster, iproute
from tests.jobs.slurm import missing, start


@pytest.fixture(scope="session")
def slurm():
    """A Slurm of one node (tests.jobs.slurm.Slurm); tests skip, with the reason, where it cannot run."""
    if reason := missing():
        pytest.skip(reason)
    with tempfile.TemporaryDirectory(prefix="fpna-slurm-") as directory:
        os.chmod(directory, 0o755)  # munged, which is not root, has its files below
        with start(Path(directory)) as running:
            yield running


@pytest.fixture(scope="module")
def slurm_of_nodes():
    """A Slurm of two nodes, n1 and n2, which are network namespaces; tests skip as with `slurm`."""
    if reason := missing() or iproute.why_not():
        pytest.skip(reason)
    with tempfile.TemporaryDirectory(prefix="fpna-slurm-") as directory:
        os.chmod(directory, 0o755)
        with cluster(nodes=2) as nodes, start(Path(directory), nodes) as running:
            yield running
