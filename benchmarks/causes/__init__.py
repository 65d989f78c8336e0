"""Programs that are wrong, and programs that only round: are they told apart?"""
