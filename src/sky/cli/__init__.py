"""The ``sky`` command: reads a command line, asks the daemon through the client, prints."""
