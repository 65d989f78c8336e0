#!/usr/bin/env bash
@{header}
#$ -N @{name}
# Start where the job was submitted, in bash.
#$ -cwd
#$ -S /bin/bash
#$ -l h_rt=@{time}
# Errors into the output, so that they stand beside what they follow.
#$ -j y
#$ -o @{output}
# Not started again by the scheduler: a second attempt would meet the traces of the first.
#$ -r n
@{directives}# Not -u: the module functions of some sites use variables that are not set.
set -eo pipefail

# This allocation's name, which traces record. Elements of an array share the job's id, so their number belongs to it;
# Grid Engine counts them from 1 and says "undefined" where there is no array.
if [ "${SGE_TASK_ID:-undefined}" = undefined ]; then
    export FPNA_ALLOCATION_ID="$JOB_ID" FPNA_ARRAY_INDEX=0
else
    export FPNA_ALLOCATION_ID="${JOB_ID}_$SGE_TASK_ID" FPNA_ARRAY_INDEX="$((SGE_TASK_ID - 1))"
fi
echo "nodes: $(cut -d ' ' -f 1 "$PE_HOSTFILE" | paste -sd ' ')"

@{setup}

@{commands}
