"""Implementations that nobody here wrote, and that Outrider is tested against."""
