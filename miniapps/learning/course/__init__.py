"""The course of steps of every learner: options, the interface of a trainer, checkpoints."""
