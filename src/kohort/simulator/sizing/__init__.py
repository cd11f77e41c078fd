"""Groups of a given size, measured: what a deployment, a failure or a day costs, by protocol and setting.

`run(point, seed)` plays one point of a grid in the simulator's world: the real wire, coordinator, broker and storage,
virtual time, members that behave as real clients do. It looks for no bugs and makes no faults but those that the point
asks for. The same point and seed give the same figures everywhere, but for the processor time.
"""

from kohort.simulator.sizing.grid import Grid, grid_in, grid_of
from kohort.simulator.sizing.point import BadPoint, Point
from kohort.simulator.sizing.run import DidNotForm, Measures, run

__all__ = ["BadPoint", "DidNotForm", "Grid", "Measures", "Point", "grid_in", "grid_of", "run"]
