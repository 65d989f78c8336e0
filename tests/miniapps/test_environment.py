"""The recorded environment: the libraries' own statements of their choices, without loading any library."""

import json
import os
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from miniapps.system import environment

ASKED = """
import json, sys
from miniapps.system import environment
environment.arithmetic()
print(json.dumps([environment.own(1, "cpu"), sorted({"torch", "scipy", "cupy"} & set(sys.modules))]))
"""


def account(**settings):
    """What a new process records under `settings`, and which of the large libraries it loaded for that."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith(environment.SETTINGS)}
    done = subprocess.run(
        [sys.executable, "-c", ASKED], capture_output=True, text=True, env=clean | settings, check=True
    )
    return json.loads(done.stdout)


def test_settings_are_recorded_with_what_they_made_libraries_choose():
    dispatched = np.show_config(mode="dicts")["SIMD Extensions"]["found"]
    own, loaded = account(
        NPY_DISABLE_CPU_FEATURES=" ".join(dispatched), OPENBLAS_CORETYPE="Haswell", MKL_CBWR="AVX2"
    )
    assert loaded == []
    assert own["arithmetic"]["numpy"] == "" and own["variables"]["MKL_CBWR"] == "AVX2"
    assert own["variables"]["NPY_DISABLE_CPU_FEATURES"] == " ".join(dispatched)
    if "openblas_numpy" in own["arithmetic"] and "X86_V3" in dispatched:
        version, kernels = own["arithmetic"]["openblas_numpy"].split()
        assert version[0].isdigit() and kernels == "Haswell"


SPINS = """
import os, sys

class Seen:
    def find_spec(name, path=None, target=None):
        if name == "kernels._native":
            print(os.environ.get("GOMP_SPINCOUNT"))

sys.meta_path.insert(0, Seen)
import miniapps.dlrm
"""


@pytest.mark.parametrize(("settings", "spins"), [({}, "1000"), ({"OMP_WAIT_POLICY": "active"}, "None")])
def test_how_long_threads_spin_is_said_before_the_library_is_loaded_that_reads_it(settings, spins):
    clean = {key: value for key, value in os.environ.items() if key != "GOMP_SPINCOUNT"}
    done = subprocess.run(
        [sys.executable, "-c", SPINS], capture_output=True, text=True, env=clean | settings, check=True
    )
    assert done.stdout == f"{spins}\n"


def test_what_is_loaded_says_what_it_chose(monkeypatch):
    torch = SimpleNamespace(
        __config__=SimpleNamespace(
            show=lambda: (
                "  - Intel(R) oneAPI Math Kernel Library Version 2024.2-Product Build 2 for Intel(R)\n"
                "  - Intel(R) MKL-DNN v3.7.1 (Git Hash 8d26)\n"
            )
        ),
        backends=SimpleNamespace(cpu=SimpleNamespace(get_cpu_capability=lambda: "AVX2")),
    )
    monkeypatch.setitem(sys.modules, "torch", torch)
    arithmetic = environment.arithmetic()
    assert (arithmetic["torch"], arithmetic["torch_mkl"], arithmetic["torch_onednn"]) == (
        "AVX2",
        "2024.2",
        "v3.7.1",
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace())  # being imported
    assert "torch" not in environment.arithmetic()


@pytest.mark.parametrize(
    ("device", "kind"),
    [("cpu", ""), ("cuda:3 NVIDIA H200 0a1b", "NVIDIA H200"), ("cuda:0 NVIDIA H200 ffff", "NVIDIA H200")],
)
def test_devices_of_one_kind_are_one_kind(device, kind):
    assert environment.accelerator(device) == kind


def test_a_process_without_a_map_of_its_memory_has_no_libraries_to_tell(monkeypatch):
    monkeypatch.setattr(environment.Path, "read_text", lambda self: (_ for _ in ()).throw(OSError()))
    assert set(environment.arithmetic()) <= {"numpy", "libc", "torch", "torch_mkl", "torch_onednn"}
