#!/usr/bin/env bash
@{header}
#PBS -N @{name}
#PBS -l select=@{nodes}:mpiprocs=@{ranks_per_node}:ompthreads=@{threads}
#PBS -l walltime=@{time}
# Errors into the output, so that they stand beside what they follow.
#PBS -j oe
@{directives}# Not -u: the module functions of some sites use variables that are not set.
set -eo pipefail

# PBS starts in the home directory.
cd "$PBS_O_WORKDIR"

# This allocation's name, which traces record: the job's number and, in an array, the element.
export FPNA_ALLOCATION_ID="${PBS_JOBID%%[.[]*}${PBS_ARRAY_INDEX:+_$PBS_ARRAY_INDEX}"
export FPNA_ARRAY_INDEX="${PBS_ARRAY_INDEX:-0}"
echo "nodes: $(sort -u "$PBS_NODEFILE" | paste -sd ' ')"

@{setup}

@{commands}
