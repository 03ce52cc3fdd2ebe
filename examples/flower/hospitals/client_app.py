"""A site: its rows are the file that its node config names, and stay there."""

from consilience.flower import client_app
from consilience.network import BUILTIN


def rows(context):
    """The node's file. Nodes in a simulation have numbers, and rows that come with the package."""
    node = context.node_config
    return BUILTIN if "data" not in node and "partition-id" in node else node.get("data")


app = client_app(rows)
