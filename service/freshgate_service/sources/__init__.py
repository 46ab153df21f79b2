"""Systems of record: how they are read, spared and mapped. Nothing here knows who asks or what is remembered."""
