"""What is remembered of a record's text. A condenser sees one record and nothing of who asks."""
