"""Publishes parameters as fast as it can until it is killed; its versions count on."""

import sys

import numpy as np

from srl.streams.layout import Layout
from srl.streams.parameter_memory import ParameterWriter
from srl.streams.transport import Identity, Message, connect

address, run, sender, size = sys.argv[1], *map(int, sys.argv[2:])
layout = Layout.of({"w": np.zeros(size), "b": np.zeros(7, np.int32)})
writer = ParameterWriter(layout)
with connect(address, Identity(run, sender, 0), limit_bytes=1 << 20) as connection:
    connection.send(Message(16, schema=layout.hash, body=layout.to_json(), fds=(writer.fd,)))
    number = 0
    while True:
        number += 1
        tree = {"w": np.full(size, float(number)), "b": np.full(7, number, np.int32)}
        writer.publish((3, number), tree)
