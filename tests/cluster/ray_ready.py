"""Waits until a Ray cluster takes jobs and has so many hosts: ADDRESS COUNT."""

import sys
import time

from ray.job_submission import JobSubmissionClient
from ray.util.state import list_nodes

address, count = sys.argv[1], int(sys.argv[2])
while True:  # until whoever waits for this has enough of it
    try:
        JobSubmissionClient(address).list_jobs()
        alive = [("state", "=", "ALIVE")]
        # Those that are gone count as missing from the answer.
        there = list_nodes(address=address, filters=alive, raise_on_missing_output=False)
    except Exception as error:  # of many kinds, while it starts
        sys.stdout.write(f"{error}\n")
        there = []
    if len(there) >= count:
        break
    time.sleep(0.2)
