"""The Python side of the simulators that srl ships, a package each."""
