"""One version: in the package, in its builds, in the citation."""

import re
import tomllib
from pathlib import Path

import pytest

import kernels
import miniapps
from analysis.__main__ import main as analysis
from jobs.__main__ import main as jobs
from kernels.__main__ import main as instruments
from kernels.commands.allreduce import main as allreduce
from kernels.commands.sums import main as sums
from miniapps.__main__ import main as suite
from miniapps.demo import main as demo
from miniapps.doctor import main as doctor

ROOT = Path(__file__).resolve().parents[2]


def test_all_places_have_the_same_version():
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"] == kernels.__version__
    assert miniapps.__version__ == kernels.__version__
    cited = re.search(r"^version: (.+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert cited and cited[1] == kernels.__version__


@pytest.mark.parametrize("main", [analysis, jobs, instruments, allreduce, sums, suite, demo, doctor])
def test_every_command_tells_it(main, capsys):
    try:
        code = main(["--version"])
    except SystemExit as end:
        code = end.code
    assert code == 0
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == (f"fpna-miniapps {kernels.__version__}\n", "")
