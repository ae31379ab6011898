"""The command line and `srl.train`."""
