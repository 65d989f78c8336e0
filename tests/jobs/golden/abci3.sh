#!/usr/bin/env bash
# weak, on abci3: 2 nodes x 8 ranks x 12 cores. To submit: qsub SCRIPT
# The scheduler writes its output into a directory that it does not make. Before you submit:
#     mkdir -p logs
# Follows https://docs.abci.ai/v3/en/job-execution
# looked at on 2026-11-21. Not checked there:
# - %1 in -J, which lets the elements of an array run one after another (PBS 2021 and later)
# - that HPC-X takes the nodes from PBS by itself: otherwise add --hostfile $PBS_NODEFILE
#PBS -N weak
#PBS -l select=2:mpiprocs=8:ompthreads=12
#PBS -l walltime=01:30:00
# Errors into the output, so that they stand beside what they follow.
#PBS -j oe
#PBS -P lab_g
#PBS -q rt_HF
#PBS -o logs/
# Repeats across allocations, one after another.
#PBS -J 0-2%1
# Not -u: the module functions of some sites use variables that are not set.
set -eo pipefail

# PBS starts in the home directory.
cd "$PBS_O_WORKDIR"

# This allocation's name, which traces record: the job's number and, in an array, the element.
export FPNA_ALLOCATION_ID="${PBS_JOBID%%[.[]*}${PBS_ARRAY_INDEX:+_$PBS_ARRAY_INDEX}"
export FPNA_ARRAY_INDEX="${PBS_ARRAY_INDEX:-0}"
echo "nodes: $(sort -u "$PBS_NODEFILE" | paste -sd ' ')"

# Batch shells here do not know `module`.
. /etc/profile.d/modules.sh

module load hpcx
module load cuda

. /proj/lab/environment/bin/activate

# Into the output, before anything can go wrong: what one rank finds here, and what is missing.
# Every rank is bound to its own cores.
mpirun -n 1 --map-by ppr:1:node:PE=12 --bind-to core \
    python -m miniapps doctor ||
    echo "doctor: something is missing (above); going on" >&2

mpirun -n 16 --map-by ppr:8:node:PE=12 --bind-to core \
    python -m miniapps.coupled --out "runs/weak-$FPNA_ALLOCATION_ID"
