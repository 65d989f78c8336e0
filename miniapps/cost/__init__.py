"""What a choice costs: two commands launched in pairs, and the ratio of their times."""
