"""Nodes that serve at once, each a part of the data (experimental).

slots       which slots this node serves, and which nodes the others
following   follows the controller's metadata log, takes and gives slots
asks        requests that nodes pass on to the controller
controller  requests for the controller, and those that such nodes refuse
founding    what a new cluster writes first, also that of a single node
"""
