"""The HTTP face: validates, authorizes, calls one step, answers."""
