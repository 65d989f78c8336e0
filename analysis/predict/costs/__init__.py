"""What work and messages cost, as functions of sizes, ranks and machines."""
