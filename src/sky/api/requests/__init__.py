"""Face 2: requests that answer under their id."""
