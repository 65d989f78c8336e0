"""What whole runs cost, and what they show."""
