"""Serving: who asks, what is asked, and the form of the answers, over REST and MCP alike.

Nothing here decides what an asker may see, or whether it is fresh: the pipeline does. It must stay the only way from a
request to the pipeline, so that no route and no tool can forget to ask who is asking.
"""
