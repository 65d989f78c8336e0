"""Audits of functions that use numba and transformers: what is said of them was checked by hand once."""

import json
import os
import subprocess
import sys

import pytest

from tests.mpi.test_packages import INSTALLED, ROOT, installed

pytestmark = pytest.mark.slow
PARALLEL = """
import numba
import numpy as np

@numba.njit(parallel=True, fastmath=True)
def over_all(x):
    total = np.float32(0)
    for i in numba.prange(x.size):
        total += x[i]
    return total

@numba.njit
def one_by_one(x):
    total = np.float32(0)
    for i in range(x.size):
        total += x[i]
    return total

def inputs(seed):
    return (np.random.default_rng(seed).standard_normal(100_000).astype("float32"),)

def parallel(x):
    return over_all(x.numpy())

def serial(x):
    return one_by_one(x.numpy())
"""
LANGUAGE = """
import numpy as np
import torch
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(1)
model = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=32, n_embd=32, n_layer=2, n_head=2)).eval()
batch = (0,)

def inputs(seed):
    return (np.random.default_rng(seed).integers(0, 64, (4, 16)),)

def forward(tokens):
    out = model(tokens)
    out.loss = out.logits.sum() if ADDED else None
    return out
"""


def audited(tmp_path, text, function):
    """The sentences on `function` of a file with this text, and its cases in the certificate by direction."""
    (tmp_path / "mine.py").write_text(text)
    env = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{INSTALLED}", "PYTHONWARNINGS": "ignore"}
    argv = [
        sys.executable,
        "-m",
        "fpna",
        "operations",
        f"mine.py:{function}",
        "--runs",
        "3",
        "--quiet",
        "--out",
        "run",
    ]
    done = subprocess.run(argv, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    cases = json.loads((tmp_path / "run" / "certificate.json").read_text())["cases"]
    sentences = json.loads((tmp_path / "run" / "result.json").read_text())["sentences"]
    return sentences, {case["direction"]: case for case in cases}


def test_threads_of_numba_are_varied_and_named(tmp_path):
    """Checked: the sum differs between 1 and 2 threads of numba, whatever torch's number is, and repeats for each.
    numba begins its OpenMP in the first call, which sets torch's number of threads: that is said too."""
    installed("numba", "llvmlite")
    sentences, cases = audited(tmp_path, PARALLEL, "parallel")
    seen = cases["forward"]["audit"]["threads"]
    assert seen["distinct"] > 1 and seen["alone"].pop("numba") > 1
    assert set(seen["alone"].values()) == {1}
    assert cases["forward"]["audit"]["runs"]["distinct"] == 1
    assert any("those of numba alone do it" in sentence for sentence in sentences)
    assert any("leaves torch's number of threads changed" in sentence for sentence in sentences)


def test_a_loop_of_numba_is_the_same_on_any_number_of_threads(tmp_path):
    """Checked: one loop, one order. Its backward cannot be had, which is said and is no comparison."""
    installed("numba", "llvmlite")
    sentences, cases = audited(tmp_path, PARALLEL, "serial")
    assert all(
        cases["forward"]["audit"][change]["distinct"] == 1 for change in ("runs", "threads", "address")
    )
    assert any("backward: refused" in sentence for sentence in sentences)


def test_the_results_of_a_model_of_transformers_are_compared_by_name(tmp_path):
    """Checked: a ModelOutput's logits and keys and values repeat; a sum of logits over the batch is among the results
    where it is asked for. Tokens have no gradient, so that backward compares nothing, and says so."""
    installed("transformers", "tokenizers")
    sentences, cases = audited(tmp_path, LANGUAGE.replace("ADDED", "True"), "forward")
    audit = cases["forward"]["audit"]
    assert audit["runs"]["distinct"] == 1 and audit["elements"] >= 4 * 16 * 64
    assert any("forward backward: nothing was compared" in sentence for sentence in sentences)
    assert cases["backward"]["outcome"] != "done"
