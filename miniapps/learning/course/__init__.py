"""The course of steps that every learner takes: its options, what it asks of a trainer, checkpoints."""
