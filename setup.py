"""The part of the build that needs code: the C++ extension `kernels._native`.

Bits come before speed: no contraction of a*b+c into one rounding, no reassociation. Vector widths are
chosen at run time (`target_clones` in the sources), so that one wheel serves every x86-64, and the same
sources build on aarch64.

With FPNA_EXTENSION=none the extension is left out: `make` builds it in place, while pip fetches the packages.
"""

import os
from glob import glob

from pybind11.setup_helpers import ParallelCompile, Pybind11Extension, build_ext
from setuptools import setup

FLAGS = ["-O3", "-fopenmp", "-ffp-contract=off", "-fno-fast-math", "-fno-math-errno", "-fno-trapping-math"]

# Less than -O3 where -O3 compiles slowly and gains nothing. The bindings contain only calls. In the two other files -O3
# also interchanges loops, and combining many vectors then takes several times as long (GCC 12).
VECTORS = ["-O2", "-ftree-vectorize", "-fvect-cost-model=dynamic"]
LESS = {"bindings.cpp": ["-O1"], "combine.cpp": VECTORS, "sizes.cpp": VECTORS}

ParallelCompile("FPNA_BUILD_JOBS").install()  # as many at once as there are cores, unless the variable says

NATIVE = Pybind11Extension(
    "kernels._native",
    # The bindings take longest to compile, so they begin first.
    sorted(glob("kernels/native/*.cpp"), key=lambda path: ("bindings" not in path, path)),
    depends=sorted(glob("kernels/native/*.hpp") + glob("kernels/include/*.hpp")),
    cxx_std=17,
    extra_compile_args=FLAGS,
    extra_link_args=["-fopenmp"],
)


class Build(build_ext):
    """As pybind11 builds, with flags of their own for the sources in LESS."""

    def build_extensions(self):
        """Compile all sources and link them."""
        compile_one = self.compiler._compile

        def compiled(obj, src, ext, cc_args, extra_postargs, pp_opts):
            flags = [*extra_postargs, *LESS.get(os.path.basename(src), [])]
            return compile_one(obj, src, ext, cc_args, flags, pp_opts)

        self.compiler._compile = compiled
        super().build_extensions()


setup(
    ext_modules=[] if os.environ.get("FPNA_EXTENSION") == "none" else [NATIVE],
    cmdclass={"build_ext": Build},
)
