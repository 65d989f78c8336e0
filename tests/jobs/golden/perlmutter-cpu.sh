#!/usr/bin/env bash
# weak, on perlmutter-cpu: 2 nodes x 32 ranks x 4 cores. To submit: sbatch SCRIPT
# The scheduler writes its output into a directory that it does not make. Before you submit:
#     mkdir -p logs
# Follows https://docs.nersc.gov/jobs/policy/
# looked at on 2026-11-21. Not checked there:
# - the limits of nodes and time, so that they are not tested
# - where Python environments start fastest
# - binding: as other applications use it here, not seen on the page
#SBATCH --job-name=weak
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=32
#SBATCH --cpus-per-task=8
#SBATCH --time=01:30:00
#SBATCH --output=logs/%x_%A_%a.out
# A job that Slurm starts again, as after the loss of a node, keeps what it printed before.
#SBATCH --open-mode=append
#SBATCH --account=lab_g
# Repeats across allocations, one after another.
#SBATCH --array=0-2%1
# The default, debug, is for short tests.
#SBATCH --qos=regular
# The nodes without GPUs.
#SBATCH --constraint=cpu
# Not -u: the module functions of some sites use variables that are not set.
set -eo pipefail

# This allocation's name, which traces record; a job that the scheduler starts again gets another one.
export FPNA_ALLOCATION_ID="$SLURM_JOB_ID${SLURM_RESTART_COUNT:+.$SLURM_RESTART_COUNT}"
export FPNA_ARRAY_INDEX="${SLURM_ARRAY_TASK_ID:-0}"
# A rank that is killed ends the others; by itself srun lets them wait for it until the time is up.
export SLURM_KILL_BAD_EXIT=1
echo "nodes: $SLURM_JOB_NODELIST"

. /proj/lab/environment/bin/activate

# Into the output, before anything can go wrong: what one rank finds here, and what is missing.
# --cpus-per-task again: srun takes it from its own command line only, since Slurm 22.05; it means hardware threads,
# two per core.
srun --nodes=1 --ntasks=1 --ntasks-per-node=1 --cpus-per-task=8 --cpu-bind=cores \
    python -m miniapps doctor ||
    echo "doctor: something is missing (above); going on" >&2

srun --nodes=2 --ntasks=64 --ntasks-per-node=32 --cpus-per-task=8 --cpu-bind=cores \
    python -m miniapps.coupled --out "runs/weak-$FPNA_ALLOCATION_ID"
