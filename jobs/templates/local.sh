#!/usr/bin/env bash
@{header}
set -eo pipefail

echo "nodes: $(hostname)"

@{setup}

# Without a scheduler the repeats run one after another here; each gets a name, which traces record.
for FPNA_ARRAY_INDEX in @{indices}; do
    FPNA_ALLOCATION_ID="local-$(hostname)-$$-$FPNA_ARRAY_INDEX"
    export FPNA_ALLOCATION_ID FPNA_ARRAY_INDEX

@{commands}
done
