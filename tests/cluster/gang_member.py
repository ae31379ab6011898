"""One of several learners: adds its number to those of the others, again and again."""

import sys

import numpy as np

from srl.loop.learning.replicas import gathered, join

address, replica, replicas = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
join(address, replica, replicas, sys.argv[4])
while True:
    numbers = gathered(np.array([replica + 1], np.uint8))
    sys.stdout.write(f"{sum(int(number[0]) for number in numbers)}\n")
    sys.stdout.flush()
