"""Which command answers a question: facts of runs, commands filled in from them, and their rank."""
