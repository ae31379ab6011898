"""Trained policies used elsewhere: agents, exports, published folders."""
