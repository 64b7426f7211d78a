"""Simulated time, fake servers and faults, for tests of code built on `runtime`.

Nothing outside of tests may import from here.
"""
