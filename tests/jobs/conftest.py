"""A Slurm for all tests of jobs that want one."""

import os
import tempfile
from pathlib import Path

import pytest

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
