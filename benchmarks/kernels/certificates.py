"""Writes certificates of `kernels.contract certify`, with the machine, as a result file.

    python -m benchmarks.kernels.certificates --json benchmarks/results/certificates.json

A certificate counts trials in which bits differ, so load on the machine has no effect on it.
"""

from __future__ import annotations

import argparse
import json
import sys

from benchmarks.harness.launching import output_of
from benchmarks.harness.results import add_quiet, machine, report


def main() -> None:
    """Certifies a deck and reports."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--deck", default="M", help="deck of the certificates (M: 100 trials each)")
    parser.add_argument("--json", help="write the rows to this file")
    add_quiet(parser)
    args = parser.parse_args()
    where = machine()
    command = [sys.executable, "-m", "kernels.contract", "certify", "--deck", args.deck, "--json"]
    command += ["--quiet"] * args.quiet
    document = json.loads(output_of(command, {"OMP_NUM_THREADS": "2"}))
    report("contract.certificates", document["tables"]["certificates"], where, args.json)


if __name__ == "__main__":
    main()
