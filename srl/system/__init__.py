"""Services of the operating system: processes, memory, limits, the import path."""
