#!/usr/bin/env bash
# @{name}: @{ranks} ranks x @{threads} cores on this machine, without a scheduler. Run: @{submit} SCRIPT
# Not -u: the module functions of some sites use variables that are not set.
set -eo pipefail

@{setup}
for FPNA_ARRAY_INDEX in @{indices}; do
# This run's name, which traces record as that of an allocation.
FPNA_ALLOCATION_ID="local-$(hostname)-$$-$FPNA_ARRAY_INDEX"
export FPNA_ALLOCATION_ID FPNA_ARRAY_INDEX
@{commands}
done
