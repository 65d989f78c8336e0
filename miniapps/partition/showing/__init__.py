"""Shows a plan without running it: bytes, stages, tables and a picture."""
