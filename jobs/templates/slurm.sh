#!/usr/bin/env bash
#SBATCH --job-name=@{name}
#SBATCH --account=@{account}
#SBATCH --nodes=@{nodes}
#SBATCH --ntasks-per-node=@{ntasks_per_node}
#SBATCH --cpus-per-task=@{cpus_per_task}
#SBATCH --time=@{time}
#SBATCH --output=%x_%j.out

# Follows the manual pages sbatch(1) and srun(1) of Slurm 22.05 and later. Sites differ in what they want besides:
# add the partition, constraint or quality of service of yours above, and its modules here.
set -euo pipefail

. @{environment}/bin/activate

# One directory per job, so that a job that is queued again never meets the traces of the first attempt.
out=@{out}/$SLURM_JOB_NAME-$SLURM_JOB_ID-${SLURM_RESTART_COUNT:-0}

# Into the job's output, before anything can go wrong: what is here, and on which nodes.
echo "nodes: $SLURM_JOB_NODELIST"
python -m miniapps doctor || echo "doctor: something is missing (above); going on" >&2

# srun takes --cpus-per-task from the command line only: since Slurm 22.05 it no longer inherits it. Binding
# ranks to cores is srun's; OMP_PROC_BIND would crowd them on the first cores where a site has switched that off.
srun@{mpi} --cpus-per-task="$SLURM_CPUS_PER_TASK" \
    python -m miniapps.coupled --deck @{deck} --threads "$SLURM_CPUS_PER_TASK" --out "$out"@{arguments}
