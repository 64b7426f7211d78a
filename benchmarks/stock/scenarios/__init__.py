"""The scenarios: what is done to an arm, and what is read off afterwards."""
