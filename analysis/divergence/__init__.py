"""Where two runs part: the first difference, its cause, the event and the element."""
