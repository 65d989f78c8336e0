"""Certificates of `kernels.contract certify` with the machine that gave them, as a result file.

    python -m benchmarks.kernels.certificates --json benchmarks/results/certificates.json

A certificate counts trials in which bits differ, so load on the machine has no effect on it.
"""

from __future__ import annotations

import argparse
import json
import sys

from benchmarks.harness.launching import output_of
from benchmarks.harness.results import machine, report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--deck", default="M", help="deck of the certificates (M: 100 trials each)")
    parser.add_argument("--json", help="write the rows to this file")
    args = parser.parse_args()
    where = machine()
    command = [sys.executable, "-m", "kernels.contract", "certify", "--deck", args.deck, "--json", "--quiet"]
    told = json.loads(output_of(command, {"OMP_NUM_THREADS": "2"}))
    report("contract.certificates", told["tables"]["certificates"], where, args.json)


if __name__ == "__main__":
    main()
