"""What real servers do: each case of a kind that broke other clients, with the right answer, against a scripted server."""
