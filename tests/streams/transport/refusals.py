"""A wait for what a listener refuses."""

from waiting import wait_until


def until_refused(listener, number=1):
    """Receives nothing until so many have been refused."""

    def refused():
        if listener.refused >= number:
            return True
        assert listener.receive(0.01) is None
        return False

    wait_until(refused)
