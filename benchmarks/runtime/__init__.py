"""Measurements of the controller runtime, against other clients and against the machine's own limits."""
