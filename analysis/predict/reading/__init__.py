"""What runs and calibrations recorded, as predictions read it."""
