import sys
import threading

import session
from coordinator import Coordinator, now

ahead = 0.0
session.now = lambda: now() + ahead

held = session.Session(Coordinator([sys.argv[1]]), "w1", [], ttl_ms=10_000)
lock = held.acquire("nightly", 10)
assert lock.token.endswith(f"/@locks/nightly@{lock.epoch}")

# An answer that takes half of a lease leaves half of it: what is believed counts from before the renewal was sent.
acknowledged, answered, left = held._acknowledged, threading.Event(), []


def slowly(ack):
    global ahead
    if answered.is_set():
        return  # no other renewal counts any more
    ahead += 5.0
    acknowledged(ack)
    left.append(held._lease - session.now())
    answered.set()


held._acknowledged = slowly
assert answered.wait(30)
assert 0 < left[0] < 5.0, left

# The lease ends while every other thread stands still, as after a pause, and the next look sees it.
with held._changed:
    assert not held.over and lock.token
    ahead += left[0]
    try:
        print("stamped", lock.token)
    except session.NotHeld as why:
        assert "its lease ran out" in str(why), why
        # A late answer brings nothing back.
        held._unanswered[1_000_000] = session.now()
        acknowledged(session.worker_pb2.Acknowledgement(number=1_000_000, revision=held._revision))
        try:
            print("stamped", lock.token)
        except session.NotHeld:
            print("late")
