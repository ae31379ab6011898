"""Common code of the commands: to read arguments, and to show progress and numbers."""
