"""Scripted servers: real processes that speak bytes, and do exactly what a test says."""
