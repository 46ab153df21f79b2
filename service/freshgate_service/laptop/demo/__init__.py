"""The demo: the whole story on real records, each line computed from what was observed."""

from freshgate_service.laptop.demo.play import tell

__all__ = ["tell"]
