"""The retrieval service: entitle, score, refresh, serve."""
