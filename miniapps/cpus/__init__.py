"""Which other processors give a program other bits, and through which library: `fpna cpus`."""
