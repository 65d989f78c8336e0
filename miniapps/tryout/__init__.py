"""`fpna try`: three findings about the bits of sums on this machine."""
