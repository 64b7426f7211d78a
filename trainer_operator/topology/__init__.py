"""The topology: members of each training and what is known of them.

Reconcilers and the agent API read views of it; only this package changes it. Placement domains join it when
placement is built.
"""
