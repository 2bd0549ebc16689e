"""What the faces show: rows as the answers of ``wire/v1``. Reads only."""
