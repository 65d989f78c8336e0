"""Execute parts of a run again and compare every bit with its records (docs/how-to/verify.md)."""
