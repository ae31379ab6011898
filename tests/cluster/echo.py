"""A TCP server that sends each line back, or, given a host, a client from the standard input."""

import socket
import sys

PORT = 7000

if len(sys.argv) == 1:
    with socket.create_server(("", PORT)) as server:
        sys.stdout.write("up\n")
        sys.stdout.flush()
        connection, _ = server.accept()
    for line in connection.makefile("rb"):
        connection.sendall(line)
else:
    connection = socket.create_connection((sys.argv[1], PORT))
    back = connection.makefile("rb")
    for line in sys.stdin.buffer:
        connection.sendall(line)
        sys.stdout.write(back.readline().decode())
        sys.stdout.flush()
