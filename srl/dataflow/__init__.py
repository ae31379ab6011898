"""The training loop as a graph, plans that spread it, and the streams that its cut edges become."""

from srl.dataflow import plans
from srl.dataflow.nodes import NODES
from srl.dataflow.plan import Fragment, Plan, num_groups

__all__ = ["NODES", "Fragment", "Plan", "num_groups", "plans"]
