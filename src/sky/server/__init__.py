"""The only place where concrete parts meet: settings in, a running daemon out."""
