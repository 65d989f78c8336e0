"""Tools for all-reduces: draw schedules, name a library's ordering, test guarantees."""
