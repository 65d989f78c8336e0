"""What a step of a plan costs on a machine, before it runs."""
