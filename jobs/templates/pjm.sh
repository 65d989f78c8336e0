#!/usr/bin/env bash
@{header}
#PJM -N @{name}
#PJM -L "node=@{nodes}"
#PJM --mpi "max-proc-per-node=@{ranks_per_node}"
#PJM -L "elapse=@{time}"
# Errors into the output, so that they stand beside what they follow; statistics of the job, nodes included.
#PJM -j
#PJM -o "@{output}"
#PJM -S
@{directives}# Not -u: the module functions of some sites use variables that are not set.
set -eo pipefail

# This allocation's name, which traces record. Sub jobs of a bulk job share the job's id, so their number belongs to it.
export FPNA_ALLOCATION_ID="$PJM_JOBID${PJM_BULKNUM:+_$PJM_BULKNUM}"
export FPNA_ARRAY_INDEX="${PJM_BULKNUM:-0}"
echo "nodes: $(paste -sd ' ' "$PJM_O_NODEINF")"

@{setup}

@{commands}
