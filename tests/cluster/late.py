"""Carries frames between two TAP devices of a host, each so many milliseconds late, in order."""

import fcntl
import os
import select
import struct
import sys
import time
from collections import deque

TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 0x0002, 0x1000
MOST_BYTES = 1 << 16


def attached(name):
    """A descriptor that reads what the kernel sends through a device, and writes what comes."""
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH", name.encode(), IFF_TAP | IFF_NO_PI))
    return device


first, second = attached(sys.argv[1]), attached(sys.argv[2])
late_seconds = float(sys.argv[3]) / 1000
frames = deque()
sys.stdout.write("up\n")
sys.stdout.flush()
while True:
    wait = max(0.0, frames[0][0] - time.monotonic()) if frames else None
    readable, _, _ = select.select([first, second], [], [], wait)
    for device in readable:
        frame = os.read(device, MOST_BYTES)
        to = second if device is first else first
        frames.append((time.monotonic() + late_seconds, to, frame))
    while frames and frames[0][0] <= time.monotonic():
        _, to, frame = frames.popleft()
        os.write(to, frame)
