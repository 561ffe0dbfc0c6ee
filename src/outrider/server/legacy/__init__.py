"""The handshake era on a modern server: an adapter that could be deleted.

`session` translates the messages of one client into the modern shape and back; `http` keeps sessions, streams and their replay for the
Streamable HTTP of 2025-03-26 to 2025-11-25.
"""
