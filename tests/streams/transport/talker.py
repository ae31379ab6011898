"""Connects, says that it is there, and goes on sending until it is ended."""

import sys

from srl.streams.transport import Identity, Message, connect

address, run = sys.argv[1], int(sys.argv[2])
connection = connect(address, Identity(run, 1, 0), limit_bytes=1 << 20)
number = 0
while True:
    connection.send(Message(16, number, body=bytes(number % 1000)))
    number += 1
