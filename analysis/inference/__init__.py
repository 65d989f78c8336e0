"""Inference, of runs that recorded how many results each image got: bits against speed of backends."""
