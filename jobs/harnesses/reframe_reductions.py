# ruff: noqa: RUF012
"""ReFrame: the reductions application as a regression test, on any system of a site's own configuration.

    reframe -c jobs/harnesses/reframe_reductions.py -r                        # here, on the generic system
    reframe -C SITE/settings.py -c jobs/harnesses/reframe_reductions.py -r    # on the partitions of SITE
    reframe ... -S num_tasks=64 -S num_tasks_per_node=32 -S variants=binned,fixed-point

The applications must be installed in the environment that the partition's programming environment sets up, or on
PYTHONPATH; `-S python=/opt/env/bin/python` names another Python.
"""

import sys

import reframe as rfm
import reframe.utility.sanity as sn
import reframe.utility.typecheck as typ
from reframe.core.builtins import performance_function, run_before, sanity_function, variable


@rfm.simple_test
class Reductions(rfm.RunOnlyRegressionTest):
    """Sums by several variants: verified, and under `layout` with the same bits on any number of ranks."""

    descr = "floating-point sums in parallel: verification, bits, rate"
    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    num_tasks = 2
    time_limit = "10m"
    tags = {"fpna", "reproducibility"}

    python = variable(str, value=sys.executable)
    variants = variable(typ.List[str], value=["binned", "exact"])
    fingerprint = variable(str, value="")  # of an earlier run of the same problem; empty: any

    @run_before("run")
    def command(self):
        self.executable = self.python
        self.executable_opts = ["-m", "miniapps.reductions", "--no-progress", "--out", "run"]
        self.executable_opts += ["--guarantee", "layout", "--size", "100000"]
        for name in self.variants:
            self.executable_opts += ["--variant", name]

    @sanity_function
    def verified(self):
        bits = self.fingerprint or "[0-9a-f]{32}"
        return sn.all(
            [
                sn.assert_found(r"^VERIFICATION: PASS$", self.stdout),
                sn.assert_found(rf"^FINGERPRINT state={bits}$", self.stdout),
            ]
        )

    @performance_function("Melement/s")
    def reference_rate(self):
        return sn.extractsingle(r"^FOM reference_rate=(\S+) Melement/s$", self.stdout, 1, float)
