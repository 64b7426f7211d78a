"""The SDK: one file that training code imports; it is copied beside the agent and never imported by it (AG4)."""
