"""What users write (v1alpha1), what the service obeys (compiled), and the pure way from one to the other (compile)."""
