#!/usr/bin/env bash
# weak, on fugaku: 48 nodes x 4 ranks x 12 cores. To submit: pjsub SCRIPT
# The scheduler writes its output into a directory that it does not make. Before you submit:
#     mkdir -p logs
# Follows
# https://www.r-ccs.riken.jp/fugaku/docs/user-guide/sys-use/user-guide-use-1.49/build/en/JobExecution/BulkJob.html
# looked at on 2026-11-21. Not checked there:
# - --bulk and --sparam inside the script: the page gives them to pjsub
# - what -o may contain, and the longest time in `small`
# - that mpiexec hands PATH on to the ranks
#PJM -N weak
#PJM -L "node=48"
#PJM --mpi "max-proc-per-node=4"
#PJM -L "elapse=01:30:00"
# Errors into the output, so that they stand beside what they follow; statistics of the job, nodes included.
#PJM -j
#PJM -o "logs/%n.%j.out"
#PJM -S
#PJM -g lab_g
#PJM -L "rscgrp=small"
# Repeats across allocations; PJM may run some at the same time.
#PJM --bulk --sparam "0-2"
# A fixed frequency: times of different jobs compare.
#PJM -L "freq=2200,eco_state=2"
# The volumes that the job may read; yours too, if it is another one: /vol0004:/vol000N.
#PJM -x PJM_LLIO_GFSCACHE=/vol0004
# The nodes' own disks, where the Python environment goes.
#PJM --llio localtmp-size=10Gi
# Not -u: the module functions of some sites use variables that are not set.
set -eo pipefail

# This allocation's name, which traces record. Sub jobs of a bulk job share the job's id, so their number belongs to it.
export FPNA_ALLOCATION_ID="$PJM_JOBID${PJM_BULKNUM:+_$PJM_BULKNUM}"
export FPNA_ARRAY_INDEX="${PJM_BULKNUM:-0}"
echo "nodes: $(paste -sd ' ' "$PJM_O_NODEINF")"

# Python from the nodes' own disks: thousands of ranks that read its files from the shared file system hold each other
# up. Pack the environment after each change:  tar -czf ENVIRONMENT.tar.gz -C ENVIRONMENT .   Where there is no archive
# it is used where it is.
if [ -f /proj/lab/environment.tar.gz ]; then
    # A copy for every node's cache; then one rank of each node, the first to make the directory, unpacks it.
    llio_transfer /proj/lab/environment.tar.gz
    # shellcheck disable=SC2016
    mpiexec -n 192 sh -c \
        'if mkdir "$PJM_LOCALTMP/environment" 2>/dev/null; then tar -xzf "$1" -C "$PJM_LOCALTMP/environment"; fi' \
        unpack /proj/lab/environment.tar.gz
    llio_transfer --purge /proj/lab/environment.tar.gz
    # Not bin/activate, which names the directory in which the environment was made.
    export PATH="$PJM_LOCALTMP/environment/bin:$PATH"
else
    . /proj/lab/environment/bin/activate
fi

# Into the output, before anything can go wrong: what one rank finds here, and what is missing.
# The directive max-proc-per-node places and binds them; Fugaku writes what they print to output.JOBID/.
mpiexec -n 1 \
    python -m miniapps doctor ||
    echo "doctor: something is missing (above); going on" >&2

mpiexec -n 192 \
    python -m miniapps.coupled --out "runs/weak-$FPNA_ALLOCATION_ID"
