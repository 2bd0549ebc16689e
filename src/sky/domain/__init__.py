"""The nouns, their facts and the tables of their legal moves. No I/O and no clock."""
