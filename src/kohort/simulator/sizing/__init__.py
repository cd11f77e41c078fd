"""Simulations of groups of a given size: the cost of a deployment, a failure or a day, by protocol and setting.

`run(point, seed)` plays one point of a grid in the simulator's world: the real wire, coordinator, broker and storage,
virtual time, members that behave as real clients. It does not look for bugs, and makes only the faults that the point
asks for. The same point and seed give the same figures everywhere, except for the processor time.

run              one run, from forming to the last change
point            one point of a grid, checked
grid             lists of values, and the points that they make
patterns         deployments and failures, as scripts
replay           the changes of a real group, as a script
worker           what members of both protocols have in common
classic_worker   a member of a classic group
consumer_worker  a member of a consumer group
clients          how real clients differ in a rebalance
topics           topics, and their partitions as numbers
board            which member works on each partition, and the cost of changes
meter            requests, records and processor time of the coordinator
summary          means of a point's runs, and their spread
advice           how to run a group, in words
plan             the load of many groups, extrapolated from single shards
"""

from kohort.simulator.sizing.grid import Grid, grid_in, grid_of
from kohort.simulator.sizing.point import BadPoint, Point
from kohort.simulator.sizing.run import DidNotForm, Measures, run

__all__ = ["BadPoint", "DidNotForm", "Grid", "Measures", "Point", "grid_in", "grid_of", "run"]
