#!/usr/bin/env bash
@{header}
#SBATCH --job-name=@{name}
#SBATCH --nodes=@{nodes}
#SBATCH --ntasks-per-node=@{ranks_per_node}
#SBATCH --cpus-per-task=@{cpus}
#SBATCH --time=@{time}
#SBATCH --output=@{output}
# A job that Slurm starts again, as after the loss of a node, keeps what it printed before.
#SBATCH --open-mode=append
@{directives}# Not -u: the module functions of some sites use variables that are not set.
set -eo pipefail

# This allocation's name, which traces record; a job that the scheduler starts again gets another one.
export FPNA_ALLOCATION_ID="$SLURM_JOB_ID${SLURM_RESTART_COUNT:+.$SLURM_RESTART_COUNT}"
export FPNA_ARRAY_INDEX="${SLURM_ARRAY_TASK_ID:-0}"
# A rank that is killed ends the others; by itself srun lets them wait for it until the time is up.
export SLURM_KILL_BAD_EXIT=1
echo "nodes: $SLURM_JOB_NODELIST"

@{setup}

@{commands}
