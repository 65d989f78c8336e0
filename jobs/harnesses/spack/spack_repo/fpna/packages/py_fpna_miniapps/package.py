# ruff: noqa: F403, F405, RUF012
"""Spack (1.0 or later): the applications and the analysis, on the MPI library of the site.

spack repo add jobs/harnesses/spack/spack_repo/fpna
spack env create fpna && spack env activate fpna
spack add py-fpna-miniapps@main +analysis
spack develop --path "$PWD" py-fpna-miniapps@main      # builds this checkout
spack install
"""

from spack.package import *
from spack_repo.builtin.build_systems.python import PythonPackage


class PyFpnaMiniapps(PythonPackage):
    """MPI mini-apps that make floating-point non-associativity visible, explainable and affordable to remove."""

    license("BSD-3-Clause")

    version("main")

    variant("analysis", default=True, description="python -m analysis: verdicts, statistics, the report")
    variant("torch", default=False, description="the learned closure of coupled, and training")

    depends_on("cxx", type="build")
    depends_on("python@3.11:", type=("build", "link", "run"))
    depends_on("py-setuptools@77:", type="build")
    depends_on("py-pybind11@2.12:", type="build")

    depends_on("mpi", type="run")
    depends_on("py-mpi4py@4:", type="run")
    depends_on("py-numpy@1.26:", type="run")
    depends_on("py-h5py@3.10:~mpi", type="run")
    depends_on("py-xxhash@3.4:", type="run")
    depends_on("py-msgspec@0.18:", type="run")
    depends_on("py-ml-dtypes@0.4:", type="run")
    depends_on("py-torch@2.4:", type="run", when="+torch")
    depends_on("py-threadpoolctl@3.2:", type="run", when="+torch")
    with when("+analysis"):
        depends_on("py-pandas@2.2:", type="run")
        depends_on("py-pyarrow@15:", type="run")
        depends_on("py-scipy@1.12:", type="run")
        depends_on("py-jinja2@3.1:", type="run")
        depends_on("py-matplotlib@3.8:", type="run")
        depends_on("py-rich@13:", type="run")

    import_modules = ["kernels", "kernels._native", "miniapps", "jobs"]
