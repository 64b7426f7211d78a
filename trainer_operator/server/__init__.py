"""What the operator serves: the agent API over TLS. Admission webhooks join it here.

Handlers authenticate, bound and decode; they decide nothing. See design/security.md sections 5 and 9.
"""
