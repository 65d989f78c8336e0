"""Settings common to all tests: the checkout importable from any directory, and one thread per process."""

import os
import signal
import sys
import zlib
from pathlib import Path

from hypothesis import HealthCheck, settings

ROOT = str(Path(__file__).resolve().parent.parent)
if ROOT not in sys.path:
    sys.path.insert(0, ROOT)

# Before anything loads OpenMP: idle threads of a busy machine would only slow the tests down.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Hundreds of processes are started: only the first of them need compile the modules that they import.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False  # rewriting the asserts of all tests takes longer than collecting them

# A busy machine makes any example slow: the time limit is pytest's.
settings.register_profile(
    "tests", max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
# Properties that leave the number of their examples open get 15 of them in `make test`, and 50 in `make test-all`,
# unless that runs a share of the slow tests.
settings.register_profile("quick", settings.get_profile("tests"), max_examples=15)

# Files whose tests take longest begin first, so that no worker is left alone with one at the end. Those that start many
# ranks stay with one worker: ranks that wait for each other take all cores.
LONG = (
    "tests/mpi/",
    "tests/packaging/",
    "tests/fuzz/",
    "tests/jobs/test_slurm_real.py",
    "tests/jobs/test_cluster_nodes.py",
    "tests/miniapps/test_main.py",
)
# Those that read all of the code do too: it is parsed once.
READERS = ("tests/test_rooms.py", "tests/test_private_names.py", "tests/miniapps/test_doors.py")


def pytest_addoption(parser):
    parser.addoption(
        "--slow-share",
        metavar="K/N",
        type=share,
        help="of the slow tests the K-th of N shares, K from 1: 2/3",
    )


def share(text):
    """(K, N) of the text K/N."""
    k, n = (int(number) for number in text.split("/"))
    if not 1 <= k <= n:
        raise ValueError(f"{text}: there are shares 1/{n} to {n}/{n}")
    return k, n


def pytest_configure(config):
    """Fewer examples where slow tests are left out, or most of them; ranks that wait leave the cores to others."""
    from tests.launch import let_waiting_ranks_sleep

    let_waiting_ranks_sleep()
    quick = config.option.markexpr == "not slow" or config.option.slow_share
    settings.load_profile("quick" if quick else "tests")


HANDLERS = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}


def pytest_runtest_teardown():
    """A run that failed in this process leaves signals ignored, and so would every process that a later test starts."""
    for number, handler in HANDLERS.items():
        signal.signal(number, handler)


def pytest_sessionfinish():
    """Nothing outlives the tests."""
    from tests import ranks

    ranks.end()


def share_of(item, n):
    """1 to n: the share of a slow test, by its name without parameters."""
    return zlib.crc32(item.nodeid.partition("[")[0].encode()) % n + 1


def pytest_xdist_make_scheduler(config, log):
    """A worker takes a whole file, or all files under mpirun, or all that read the code."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            file = nodeid.partition("::")[0]
            return LONG[0] if file.startswith(LONG[0]) else READERS[0] if file in READERS else file

    return ByFile(config, log)


def pytest_collection_modifyitems(config, items):
    """A share of the slow tests, if one is asked for; long files first, otherwise as collected."""
    if config.option.slow_share:
        k, n = config.option.slow_share
        left_out = {item for item in items if item.get_closest_marker("slow") and share_of(item, n) != k}
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]
    items.sort(
        key=lambda item: next((i for i, name in enumerate(LONG) if item.nodeid.startswith(name)), len(LONG))
    )
