"""The deterministic simulator: the real wire, broker, coordinator and storage in a world that a seed makes."""

from kohort.simulator.simulate import Result, run

__all__ = ["Result", "run"]
