"""Judging any server's discovery: requirements as data, checks that a harmless client may make, reports."""
