"""Starts a node of Ray's as its program `ray` does, but on the loopback interface: `python ray_node.py start ...`.

Ray replaces that address by one that other machines can reach; its own switch against this allows a single node.
"""

from ray._private import services
from ray.scripts.scripts import main

services.resolve_ip_for_localhost = lambda host: host
main()
