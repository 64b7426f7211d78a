"""Notifications: who is told what about a Trainer, and how that leaves the cluster (NT1 to NT6).

    status before, after ──triggers──▶ happenings ──routes, outbox──▶ status.outbox ──notifier──▶ destinations
                                                                          ▲                          │
                                                                          └────────── settled ───────┘

What is to be sent is stored with the very change that it tells of, and is taken from the status once it was sent: an
operator that dies in between loses nothing, and repeats at most what it was sending (NT3).
"""

__all__: list[str] = []
