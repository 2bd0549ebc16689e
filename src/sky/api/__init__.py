"""The faces: they decode, call one verb or one read, and encode. Nothing is decided here."""
