"""`fpna try`: what this machine does to the bits of a sum, in three findings."""
