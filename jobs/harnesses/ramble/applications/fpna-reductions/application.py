# ruff: noqa: F403, F405
"""Ramble: the reductions application, parallel sums by several variants, with figures of merit and a verification.

    ramble repo add jobs/harnesses/ramble
    ramble info fpna-reductions

`python` must have the applications installed: choose it by the environment or a variable of the workspace.
"""

from ramble.appkit import *


class FpnaReductions(ExecutableApplication):
    """The reductions application: rates of summation, and a check that all variants keep their guarantee."""

    name = "fpna-reductions"

    tags("reproducibility", "mini-app", "mpi")

    executable(
        "reductions",
        "python -m miniapps.reductions --no-progress --out {experiment_run_dir}/run --guarantee {guarantee} "
        "--size {size} --samples {samples} --threads {n_threads} --seed {seed}",
        use_mpi=True,
    )
    workload("sums", executables=["reductions"])

    workload_variable("guarantee", default="none", values=["none", "run", "layout", "exact"],
                      description="what the bits of every sum are promised to be", workloads=["sums"])  # fmt: skip
    workload_variable("size", default="100000", description="numbers in an array", workloads=["sums"])
    workload_variable("samples", default="10", description="sums of every array", workloads=["sums"])
    workload_variable("seed", default="1", description="seed of all random numbers", workloads=["sums"])

    figure_of_merit(
        "reference rate",
        fom_regex=r"^FOM reference_rate=(?P<value>\S+) Melement/s",
        group_name="value",
        units="Melement/s",
    )
    figure_of_merit(
        "fingerprint", fom_regex=r"^FINGERPRINT state=(?P<value>[0-9a-f]{32})", group_name="value", units=""
    )
    success_criteria("verified", mode="string", match=r"VERIFICATION: PASS$")
