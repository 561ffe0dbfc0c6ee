"""Sample servers of every kind, for `outrider demo` and for trying things out: good ones, old ones and broken ones."""
