"""What reading, querying, comparing and reporting costs."""
