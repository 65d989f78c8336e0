"""Reads runs and calibrations for predictions."""
