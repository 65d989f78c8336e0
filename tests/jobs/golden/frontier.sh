#!/usr/bin/env bash
# weak, on frontier: 2 nodes x 8 ranks x 7 cores. To submit: sbatch SCRIPT
# The scheduler writes its output into a directory that it does not make. Before you submit:
#     mkdir -p logs
# Follows https://docs.olcf.ornl.gov/systems/frontier_user_guide.html
# looked at on 2026-11-21. Not checked there:
# - that a venv, not only a conda environment, starts from /mnt/bb
#SBATCH --job-name=weak
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --cpus-per-task=7
#SBATCH --time=01:30:00
#SBATCH --output=logs/%x_%A_%a.out
# A job that Slurm starts again, as after the loss of a node, keeps what it printed before.
#SBATCH --open-mode=append
#SBATCH --account=lab_g
#SBATCH --partition=batch
# Repeats across allocations, one after another.
#SBATCH --array=0-2%1
# The nodes' own disks, where the Python environment goes.
#SBATCH --constraint=nvme
# All GPUs of the nodes for the job; srun gives them out.
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

# The MPI library's version into the output.
export MPICH_VERSION_DISPLAY=1
# The MPI library's settings into the output: they choose the all-reduce algorithm, and so the bits.
export MPICH_ENV_DISPLAY=1
# GPU-aware MPI; mpi4py must be built with craype-accel-amd-gfx90a loaded, or MPI does not start.
export MPICH_GPU_SUPPORT_ENABLED=1

# Python from the nodes' own disks: at scale the start from Orion or NFS takes minutes. Pack the environment after each
# change:  tar -czf ENVIRONMENT.tar.gz -C ENVIRONMENT .   (a conda environment: conda pack). Where there is no archive
# it is used where it is. A broadcast that fails ends the job: half an environment gives confusing errors.
if [ -f /proj/lab/environment.tar.gz ]; then
    sbcast -pf /proj/lab/environment.tar.gz "/mnt/bb/$USER/environment.tar.gz"
    srun --nodes=2 --ntasks-per-node=1 mkdir -p "/mnt/bb/$USER/environment"
    srun --nodes=2 --ntasks-per-node=1 \
        tar -xzf "/mnt/bb/$USER/environment.tar.gz" -C "/mnt/bb/$USER/environment"
    # Not bin/activate, which names the directory in which the environment was made.
    export PATH="/mnt/bb/$USER/environment/bin:$PATH"
    if [ -x "/mnt/bb/$USER/environment/bin/conda-unpack" ]; then
        srun --nodes=2 --ntasks-per-node=1 conda-unpack
    fi
else
    . /proj/lab/environment/bin/activate
fi

# Into the output, before anything can go wrong: what one rank finds here, and what is missing.
# --cpus-per-task again: srun takes it from its own command line only; the GPU next to a rank's cores has not its
# local rank's number here, so that Slurm binds it.
srun --nodes=1 --ntasks=1 --ntasks-per-node=1 --cpus-per-task=7 --gpus-per-task=1 --gpu-bind=closest \
    python -m miniapps doctor ||
    echo "doctor: something is missing (above); going on" >&2

srun --nodes=2 --ntasks=16 --ntasks-per-node=8 --cpus-per-task=7 --gpus-per-task=1 --gpu-bind=closest \
    python -m miniapps.coupled --out "runs/weak-$FPNA_ALLOCATION_ID"
