"""What commands share: how arguments are read, and how progress and numbers are shown."""
