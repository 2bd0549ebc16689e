"""The bridge to a console: the client that a seller asks with, and a console for development and tests."""
