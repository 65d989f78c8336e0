"""A program on other ranks: its predicted time, who waits for whom, and the uncertainty."""
