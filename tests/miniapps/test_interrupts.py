"""Signals as exceptions: delayed where an exception would end the process without a word."""

import signal
import subprocess
import sys

import pytest

TORCH = """
import os, signal
os.kill(os.getpid(), signal.{name})
import time
time.sleep(0.3)
loaded = True
"""
PROGRAM = """
import sys, time
from miniapps.system import interrupts
try:
    with interrupts.raising():
        import torch
        time.sleep(10)
except (KeyboardInterrupt, interrupts.Terminated) as error:
    print(type(error).__name__, sys.modules["torch"].loaded)
"""


@pytest.mark.parametrize(
    ("name", "raised"), [(signal.SIGINT.name, "KeyboardInterrupt"), (signal.SIGTERM.name, "Terminated")]
)
def test_a_signal_while_torch_is_imported_is_raised_when_it_is_there(tmp_path, monkeypatch, name, raised):
    """A stand-in for torch, whose own import ends in std::terminate."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch/__init__.py").write_text(TORCH.format(name=name))
    monkeypatch.syspath_prepend(tmp_path)
    program = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{PROGRAM}"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (run.returncode, run.stdout, run.stderr) == (0, f"{raised} True\n", "")
