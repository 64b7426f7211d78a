"""The audit trail: who decided what about which object, as a chain of hashes that shows when somebody changed it (AU)."""
