#!/usr/bin/env bash
# weak, on tsubame4: 4 nodes x 4 ranks x 48 cores. To submit: qsub -g lab_g SCRIPT
# The scheduler writes its output into a directory that it does not make. Before you submit:
#     mkdir -p logs
# Follows https://www.t4.cii.isct.ac.jp/docs/handbook.en/jobs/
# looked at on 2026-11-21. Not checked there:
# - the page itself could not be read; node_f, h_rt, -g and the modules are as in users' scripts
# - the longest time (24 hours, says another project) and the most nodes, so that they are not tested
# - -tc, which lets the elements of an array run one after another
#$ -N weak
# Start where the job was submitted, in bash.
#$ -cwd
#$ -S /bin/bash
#$ -l h_rt=01:30:00
# Errors into the output, so that they stand beside what they follow.
#$ -j y
#$ -o logs/$JOB_NAME.$JOB_ID.$TASK_ID.out
# Not started again by the scheduler: a second attempt would meet the traces of the first.
#$ -r n
# Repeats across allocations, one after another.
#$ -t 1-3
#$ -tc 1
# Whole nodes, with their four GPUs.
#$ -l node_f=4
# Not -u: the module functions of some sites use variables that are not set.
set -eo pipefail

# This allocation's name, which traces record. Elements of an array share the job's id, so their number belongs to it;
# Grid Engine counts them from 1 and says "undefined" where there is no array.
if [ "${SGE_TASK_ID:-undefined}" = undefined ]; then
    export FPNA_ALLOCATION_ID="$JOB_ID" FPNA_ARRAY_INDEX=0
else
    export FPNA_ALLOCATION_ID="${JOB_ID}_$SGE_TASK_ID" FPNA_ARRAY_INDEX="$((SGE_TASK_ID - 1))"
fi
echo "nodes: $(cut -d ' ' -f 1 "$PE_HOSTFILE" | paste -sd ' ')"

# Batch shells here do not know `module`.
. /etc/profile.d/modules.sh

module load openmpi
module load cuda

. /proj/lab/environment/bin/activate

# Into the output, before anything can go wrong: what one rank finds here, and what is missing.
# Every rank is bound to its own cores; Open MPI takes the nodes from Grid Engine.
mpirun -n 1 --map-by ppr:1:node:PE=48 --bind-to core \
    python -m miniapps doctor ||
    echo "doctor: something is missing (above); going on" >&2

mpirun -n 16 --map-by ppr:4:node:PE=48 --bind-to core \
    python -m miniapps.coupled --out "runs/weak-$FPNA_ALLOCATION_ID"
