"""Face 3: paid jobs behind an API key."""
