"""Measures Freshgate beside what a user would pick instead. Not part of the wheel; it asks the service's public parts
only, and changes nothing of it."""
