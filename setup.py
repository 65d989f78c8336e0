"""The part of the build that needs code: the C++ extension `kernels._native`.

Bits come before speed: no contraction of a*b+c into one rounding, no reassociation. Vector widths are
chosen at run time (`target_clones` in the sources), so that one wheel serves every x86-64, and the same
sources build on aarch64.
"""

from glob import glob

from pybind11.setup_helpers import ParallelCompile, Pybind11Extension, build_ext
from setuptools import setup

FLAGS = ["-O3", "-fopenmp", "-ffp-contract=off", "-fno-fast-math", "-fno-math-errno", "-fno-trapping-math"]

ParallelCompile("FPNA_BUILD_JOBS").install()  # as many at once as there are cores, unless the variable says

setup(
    ext_modules=[
        Pybind11Extension(
            "kernels._native",
            sorted(glob("kernels/native/*.cpp")),
            depends=sorted(glob("kernels/native/*.hpp") + glob("kernels/include/*.hpp")),
            cxx_std=17,
            extra_compile_args=FLAGS,
            extra_link_args=["-fopenmp"],
        )
    ],
    cmdclass={"build_ext": build_ext},
)
