"""What a plan comes to: bytes, stages, tables and a picture, without running it."""
