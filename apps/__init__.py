"""The programs: thin shells around the engine."""
