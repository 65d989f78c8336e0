#!/usr/bin/env bash
# weak, on miyabi-g: 4 nodes x 1 rank x 72 cores. To submit: qsub SCRIPT
# The scheduler writes its output into a directory that it does not make. Before you submit:
#     mkdir -p logs
# Follows https://www.cc.u-tokyo.ac.jp/en/supercomputer/miyabi/service/course.php
# looked at on 2026-11-21. Not checked there:
# - of the page only the beginning could be read; queue, group_list, select and modules are as in users' scripts
# - the limits of nodes and time, so that they are not tested
# - %1 in -J, which lets the elements of an array run one after another (PBS 2021 and later)
#PBS -N weak
#PBS -l select=4:mpiprocs=1:ompthreads=72
#PBS -l walltime=01:30:00
# Errors into the output, so that they stand beside what they follow.
#PBS -j oe
#PBS -W group_list=lab_g
#PBS -q regular-g
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

module load nvidia
module load nv-hpcx
module load cuda

. /proj/lab/environment/bin/activate

# Into the output, before anything can go wrong: what one rank finds here, and what is missing.
# Every rank is bound to its own cores; Open MPI takes the nodes from PBS.
mpirun -n 1 --map-by ppr:1:node:PE=72 --bind-to core \
    python -m miniapps doctor ||
    echo "doctor: something is missing (above); going on" >&2

mpirun -n 4 --map-by ppr:1:node:PE=72 --bind-to core \
    python -m miniapps.coupled --out "runs/weak-$FPNA_ALLOCATION_ID"
