#!/usr/bin/env bash
# weak, without a scheduler: 2 ranks x 1 core. To run: bash SCRIPT
set -eo pipefail

echo "nodes: $(hostname)"

. /proj/lab/environment/bin/activate

# Into the output, before anything can go wrong: what one rank finds here, and what is missing.
# The mpirun of the MPI library that mpi4py runs on, as the doctor tells.
mpirun -n 1 \
    python -m miniapps doctor ||
    echo "doctor: something is missing (above); going on" >&2

# Without a scheduler the repeats run one after another here; each gets a name, which traces record.
for FPNA_ARRAY_INDEX in 0 1 2; do
    FPNA_ALLOCATION_ID="local-$(hostname)-$$-$FPNA_ARRAY_INDEX"
    export FPNA_ALLOCATION_ID FPNA_ARRAY_INDEX

    mpirun -n 2 \
        python -m miniapps.coupled --out "runs/weak-$FPNA_ALLOCATION_ID"
done
