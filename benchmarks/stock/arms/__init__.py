"""The arms: one module for each operator that is compared."""
