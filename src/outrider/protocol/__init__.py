"""What the specification says, as pure functions and tables: no event loop, no clock, no socket, no file."""
