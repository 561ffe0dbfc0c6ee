"""Many servers as one: where they are configured, what they offer, how it is searched and shown to a model."""
