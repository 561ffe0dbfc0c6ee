"""The official conformance suite, run against Outrider's client and server."""
