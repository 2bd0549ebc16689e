"""What runs on a node: it dials a daemon, runs calls in worker processes and tells how they ended.

Decides: nothing about which call runs where; that is the daemon's. Never: unpickles anything of a user's
outside of a worker process. Follows: see ``main`` for how the parts meet, ``wire/agent`` for what is said.
"""
