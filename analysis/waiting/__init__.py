"""Who waits for whom in one repeat: waits, replays of them, efficiencies, late ranks, slow links, the critical path."""
