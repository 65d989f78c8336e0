"""Who owns which part of the data, and the messages that carry what others own."""
