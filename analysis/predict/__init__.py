"""Predicts the time per step, and scores predictions.

Imports go one way: choices, simulation, costs, reading. Scoring imports reading.
"""
