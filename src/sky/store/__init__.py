"""The only SQL. ``tx`` is the one door for writing; everything else here reads."""
