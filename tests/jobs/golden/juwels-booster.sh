#!/usr/bin/env bash
# weak, on juwels-booster: 2 nodes x 4 ranks x 12 cores. To submit: sbatch SCRIPT
# The scheduler writes its output into a directory that it does not make. Before you submit:
#     mkdir -p logs
# Follows https://apps.fz-juelich.de/jsc/hps/juwels/batchsystem.html
# looked at on 2026-11-21. Not checked there:
# - the page itself could not be read; partition, --gres and --cpus-per-task are as in users' scripts
# - the limits of nodes and time, so that they are not tested
# - the order of the GPUs
# - the modules' versions: `module avail` tells
#SBATCH --job-name=weak
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=24
#SBATCH --time=01:30:00
#SBATCH --output=logs/%x_%A_%a.out
# A job that Slurm starts again, as after the loss of a node, keeps what it printed before.
#SBATCH --open-mode=append
#SBATCH --account=lab_g
#SBATCH --partition=booster
# Repeats across allocations, one after another.
#SBATCH --array=0-2%1
# Nodes are given whole, and always with their four GPUs.
#SBATCH --gres=gpu:4
# Not -u: the module functions of some sites use variables that are not set.
set -eo pipefail

# This allocation's name, which traces record; a job that the scheduler starts again gets another one.
export FPNA_ALLOCATION_ID="$SLURM_JOB_ID${SLURM_RESTART_COUNT:+.$SLURM_RESTART_COUNT}"
export FPNA_ARRAY_INDEX="${SLURM_ARRAY_TASK_ID:-0}"
# A rank that is killed ends the others; by itself srun lets them wait for it until the time is up.
export SLURM_KILL_BAD_EXIT=1
echo "nodes: $SLURM_JOB_NODELIST"

module load Stages
module load GCC
module load OpenMPI
module load MPI-settings/CUDA

. /proj/lab/environment/bin/activate

# Into the output, before anything can go wrong: what one rank finds here, and what is missing.
# --cpus-per-task again: srun takes it from its own command line only and it means hardware threads, two per core;
# every rank sees all GPUs of its node, in the order in which local rank i takes the one next to its cores: set behind
# srun, which sets it otherwise.
srun --nodes=1 --ntasks=1 --ntasks-per-node=1 --cpus-per-task=24 env CUDA_VISIBLE_DEVICES=1,0,3,2 \
    python -m miniapps doctor ||
    echo "doctor: something is missing (above); going on" >&2

srun --nodes=2 --ntasks=8 --ntasks-per-node=4 --cpus-per-task=24 env CUDA_VISIBLE_DEVICES=1,0,3,2 \
    python -m miniapps.coupled --out "runs/weak-$FPNA_ALLOCATION_ID"
