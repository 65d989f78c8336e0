"""Costs of work and messages as functions of sizes, ranks and machines."""
