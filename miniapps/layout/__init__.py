"""The assignment of data to ranks, and the messages that carry data of other ranks."""
