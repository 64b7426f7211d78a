"""What the operator tells of trainings in numbers. Reconcilers and the agent API write here; nothing reads it back."""
