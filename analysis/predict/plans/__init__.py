"""The time of a step from its plan, without a run of it."""
