"""Measures whether `fpna divergence` and `fpna cause` distinguish programs with bugs from programs that only round."""
