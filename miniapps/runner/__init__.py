"""What runs an application: options and decks, context, checks, failures, exit codes."""
