#!/usr/bin/env bash
# weak, on lumi-g: 2 nodes x 8 ranks x 7 cores. To submit: sbatch SCRIPT
# The scheduler writes its output into a directory that it does not make. Before you submit:
#     mkdir -p logs
# Follows https://docs.lumi-supercomputer.eu/runjobs/scheduled-jobs/lumig-job/
# looked at on 2026-11-21. Not checked there:
# - the modules
#SBATCH --job-name=weak
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --cpus-per-task=7
#SBATCH --time=01:30:00
#SBATCH --output=logs/%x_%A_%a.out
# A job that Slurm starts again, as after the loss of a node, keeps what it printed before.
#SBATCH --open-mode=append
#SBATCH --account=lab_g
#SBATCH --partition=standard-g
# Repeats across allocations, one after another.
#SBATCH --array=0-2%1
# Not --gpus-per-task, which hides a node's other GPUs from a rank: the program chooses its own by local rank.
#SBATCH --gpus-per-node=8
# Not -u: the module functions of some sites use variables that are not set.
set -eo pipefail

# This allocation's name, which traces record; a job that the scheduler starts again gets another one.
export FPNA_ALLOCATION_ID="$SLURM_JOB_ID${SLURM_RESTART_COUNT:+.$SLURM_RESTART_COUNT}"
export FPNA_ARRAY_INDEX="${SLURM_ARRAY_TASK_ID:-0}"
# A rank that is killed ends the others; by itself srun lets them wait for it until the time is up.
export SLURM_KILL_BAD_EXIT=1
echo "nodes: $SLURM_JOB_NODELIST"

module load craype-accel-amd-gfx90a
module load rocm

# GPU-aware MPI; mpi4py must be built with craype-accel-amd-gfx90a loaded, or MPI does not start.
export MPICH_GPU_SUPPORT_ENABLED=1

. /proj/lab/environment/bin/activate

# Into the output, before anything can go wrong: what one rank finds here, and what is missing.
# Local rank i, which takes GPU i, runs on the seven cores next to that GPU: for up to eight ranks per node; with
# --cpus-per-task the step would not have all these cores.
srun --nodes=1 --ntasks=1 --ntasks-per-node=1 --cpu-bind=mask_cpu:fe000000000000,fe00000000000000,fe0000,fe000000,fe,fe00,fe00000000,fe0000000000 \
    python -m miniapps doctor ||
    echo "doctor: something is missing (above); going on" >&2

srun --nodes=2 --ntasks=16 --ntasks-per-node=8 --cpu-bind=mask_cpu:fe000000000000,fe00000000000000,fe0000,fe000000,fe,fe00,fe00000000,fe0000000000 \
    python -m miniapps.coupled --out "runs/weak-$FPNA_ALLOCATION_ID"
