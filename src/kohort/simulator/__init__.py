"""The deterministic simulator: the real wire, broker, coordinator and storage in a world that a seed decides.

plan      what a seed chooses: faults, settings, actors
simulate  one run: faults, healing, checks of the end state
many      many seeds over the machine's cores
shrink    shrinks a failing run
scenario  a run as a scenario file
world/    the queue, the clock, the server's process, its disk and connections
actors/   the simulated clients
checks/   what must hold after every turn
sizing/   groups of a given size, measured
"""

from kohort.simulator.simulate import Result, run

__all__ = ["Result", "run"]
