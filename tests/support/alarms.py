"""Signal handlers that run at chosen moments, for both Python suites.

A timer that outlives its handler ends the whole test run ("Alarm clock"): a handler that arms the
next one may run between disarming and the return of the old handler. Hence one place for it.
"""
import contextlib
import faulthandler
import functools
import random
import signal
import time


@contextlib.contextmanager
def alarms(handler):
    """Gives arm(seconds), after which handler() runs once, in the main thread; arm(0) disarms.
    No alarm comes after the block, whatever handler arms. A block of over 60 s is a hang."""
    live = [True]
    before = signal.signal(signal.SIGALRM, lambda *_: live and handler())
    faulthandler.dump_traceback_later(60, exit=True)
    arm = functools.partial(signal.setitimer, signal.ITIMER_REAL)
    try:
        yield arm
    finally:
        live.clear()
        arm(0)
        signal.signal(signal.SIGALRM, before)
        faulthandler.cancel_dump_traceback_later()


@contextlib.contextmanager
def on_alarm(seconds, handler):
    """handler() runs so many seconds from now, if the block lasts so long."""
    with alarms(handler) as arm:
        arm(seconds)
        yield


def interrupted_at_any_moment(work, after=lambda: None, seconds=4, shortest=20e-6, longest=300e-6):
    """Calls work() over and over, and interrupts it each time within [shortest, longest] s; after()
    runs after each interrupt. Returns how many there were."""
    def handler():
        raise KeyboardInterrupt

    rng, interrupted, end = random.Random(1), 0, time.monotonic() + seconds
    with alarms(handler) as arm:
        while time.monotonic() < end:
            try:
                try:
                    arm(rng.uniform(shortest, longest))
                    enough = time.monotonic() + 50 * longest  # one in a finalizer is lost
                    while time.monotonic() < enough:
                        work()
                finally:
                    arm(0)
            except KeyboardInterrupt:
                interrupted += 1
            after()
    return interrupted


def handled_at_any_moment(store):
    """Uses a store while signal handlers use it, too: each call gets its own answer."""
    rng, handled = random.Random(1), []

    def handler():
        handled.append(store.add("handled", 1))
        arm(rng.uniform(50e-6, 2e-3))

    end, number = time.monotonic() + 3, 0
    with alarms(handler) as arm:
        arm(1e-3)
        while time.monotonic() < end:
            number += 1
            store.set("k", str(number))
            assert store.get("k") == str(number).encode()
            assert store.add("n", 1) == number
    assert len(handled) > 50 and handled == list(range(1, len(handled) + 1))
