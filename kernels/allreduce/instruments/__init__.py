"""Looking at all-reduces: drawing schedules, naming a library's ordering, testing what they promise."""
