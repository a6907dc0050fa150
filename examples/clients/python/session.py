"""A session in Python: one lease for all partitions and locks that a worker holds.

One rule carries the rest: whoever holds something asks for its token before each thing that it does, sends the token with it, and the
storage's fence refuses a token that is too old. `Grant.token` looks at the clock each time, and raises NotHeld when the time is over.

What is not in here: a health check that stops renewing when the program is wedged, drills, loads, and joining again after a loss.
"""

import hashlib
import os
import queue
import random
import threading
import time
from typing import Any, Dict, Iterator, List, Optional, Tuple

import grpc
from coordinator import Coordinator, Failed, now, siphash
from ringfence.v1 import common_pb2 as common, lock_pb2, worker_pb2
from ringfence.v1.lock_pb2_grpc import LockServiceStub
from ringfence.v1.worker_pb2_grpc import WorkerServiceStub

# Of a span that the coordinator gave, what may be believed: clocks' rates differ by 1 % at the most, and 20 ms for their grain.
RATE, MARGIN = 0.99, 0.02
# Under TAKEOVER_FENCE: how long a holder goes on after its connection was lost.
GRACE = 0.2
Place = Tuple[Any, ...]  # ("orders", 17) of a partition, ("nightly",) of a lock


class NotHeld(Exception):
    """What was granted is not held any more, or not for now. Stop; send nothing under its token."""


class Grant:
    """A partition or a lock, under one epoch. What is granted anew is a new object, so that no operation changes its epoch."""

    def __init__(self, session: "Session", place: Place, mark: int, takeover: int, told: Any):
        self.place, self.epoch, self._session, self._mark, self._takeover = place, told.epoch, session, mark, takeover
        self._bound, self._lost, self._gone = float("inf"), "", threading.Event()
        scope = f"{place[0]}/{place[1]}" if len(place) == 2 else f"@locks/{place[0]}"
        self._text = f"{session.cluster}/{scope}@{self.epoch}"
        # Of a partition: the fences to raise before anything is read, its own last; and which keys it has.
        ancestors = [(a.partition, a.epoch) for a in getattr(told, "ancestors", ())]
        self.raises = [f"{session.cluster}/{place[0]}/{p}@{e}" for p, e in ancestors] + [self._text]
        self._divisor = getattr(told, "divisor", 0)
        self.shared = getattr(told, "mode", None) == lock_pb2.LOCK_MODE_SHARED

    @property
    def token(self) -> str:
        """CLUSTER/SCOPE@EPOCH, for an operation that begins now. It keeps it, also for its retries."""
        left = self._left()
        if left <= 0:
            raise NotHeld(f"{self._text}: {self._lost or 'its time is over, or its connection is lost'}")
        return self._text

    def has(self, key: bytes) -> bool:
        """Of a partition: whether the key is one of its own. After a split it may not be any more."""
        return siphash(key) % (self._divisor or self._session.partitions[self.place[0]]) == self.place[1]

    def until_revoked(self, seconds: float) -> bool:
        """Waits; False as soon as it is wanted back or lost: stop, flush, release."""
        return not self._gone.wait(max(0.0, min(seconds, self._left()))) and self._left() > 0

    def ready(self) -> None:
        """Of a partition: its fences are raised and its state is loaded; callers may come."""
        self._session._report(self, ready={})

    def release(self, error: Optional[str] = None) -> None:
        """Gives it back, when nothing is under way any more; told until the coordinator knows. It may be called after a loss too."""
        session, asked = self._session, self._gone.is_set()
        # Not believed from before it is said: a push that is on its way brings nothing back.
        session._lose(self, "it was given back")
        if len(self.place) == 2:
            what = {"failed": {"error": error}} if error else {"released": {}} if asked else {"returned": {}}
            session._report(self, **what)
        elif self.shared:
            session._abandon(self.place, self._mark)  # those who share a lock have one epoch, which names no grant
        else:
            named = session._named(lock_pb2.ReleaseLockRequest, lock=self.place[0], epoch=self.epoch)
            session._outbox.put((LockServiceStub, "Release", named))

    def _left(self) -> float:
        """For how long it holds: a comparison on the caller's path. A flag that a thread sets would be stale after a pause."""
        with self._session._changed:
            self._session._expire()
            fence = self._session._grace if self._takeover == common.TAKEOVER_FENCE else float("inf")
            return 0.0 if self._lost else min(self._session._lease or 0.0, self._bound, fence) - now()


class Lock(Grant):
    def __enter__(self) -> "Lock":
        return self

    def __exit__(self, *_: Any) -> None:
        self.release()


class Session:
    """One life of a worker: a lease for all that it holds, renewed by a thread of its own. When it is over, it is over: the
    program ends what it does and starts again, or opens another."""

    def __init__(self, coordinator: Coordinator, worker: str, keyspaces: List[str], ttl_ms: int = 0, address: str = ""):
        self.coordinator, self._secret = coordinator, os.urandom(32)
        # The lease is not counted from here: no answer but an acknowledgement of a renewal extends it.
        joined = coordinator.call(WorkerServiceStub, "Join", worker_pb2.JoinRequest(
            protocol=1, worker=worker, nonce=os.urandom(16), secret_sha256=hashlib.sha256(self._secret).digest(),
            address=address, keyspaces=keyspaces, replace=True, splits=True, ttl_ms=ttl_ms))
        self.cluster, self.id, self.ttl = joined.cluster, joined.session, joined.ttl_ms / 1000
        self._takeover = {k.name: k.policy.takeover for k in joined.keyspaces}
        self.partitions = {k.name: k.partitions for k in joined.keyspaces}
        self.grants: "queue.Queue[Grant]" = queue.Queue()  # partitions, as they are granted; each has to be released
        self.over = ""  # why it is over
        self._lease: Optional[float] = None  # until when, once a renewal was acknowledged
        self._grace = float("inf")
        self._revision, self._picture = -1, None
        self._held: Dict[Place, Grant] = {}
        self._marks: Dict[Place, int] = {}  # the highest epoch believed of a partition, the highest number of a lock
        self._asked: Dict[int, Optional[Lock]] = {}  # acquires that somebody waits for
        self._fresh: List[Grant] = []  # believed, and not handed out yet
        self._number, self._leaving = 0, False
        self._stream: Any = None
        self._unanswered: Dict[int, float] = {}
        self._changed = threading.Condition(threading.RLock())
        self._outbox: "queue.Queue[Tuple[Any, str, Any]]" = queue.Queue()
        for run in (self._keep, self._tell):
            threading.Thread(target=run, daemon=True).start()

    def acquire(self, name: str, seconds: float, shared: bool = False, takeover: int = common.TAKEOVER_LEASE) -> Optional[Lock]:
        """Waits for a lock; None when it was not to be had. With 0 seconds it does not queue."""
        mode = lock_pb2.LOCK_MODE_SHARED if shared else lock_pb2.LOCK_MODE_EXCLUSIVE
        with self._changed:
            if (name,) in self._held:
                raise ValueError(f"this session holds {name}")
            self._number += 1
            number = self._number
            self._asked[number] = None
            settled = min(self._asked)
        try:
            answer = self.coordinator.call(LockServiceStub, "Acquire", self._named(
                lock_pb2.AcquireLockRequest, lock=name, number=number, settled_below=settled, wait=seconds > 0,
                wish=lock_pb2.LockWish(mode=mode, takeover=takeover)))
            # "Granted" says nothing of now. The stream tells what is held, and what it tells is renewed.
            patience = {"held": 0.0, "queued": seconds, "granted": self.ttl}[answer.WhichOneof("what")]
            with self._changed:
                self._changed.wait_for(lambda: self.over or self._asked[number], patience)
                if self.over:
                    raise NotHeld(self.over)
                return self._asked[number]
        finally:
            with self._changed:
                if self._asked.pop(number) is None:
                    self._give_up(name, number)

    def leave(self, patience: float = 30.0) -> None:
        """Revokes all, waits until it was released, and ends the session. What was not released goes on when the lease is over."""
        self._outbox.put((WorkerServiceStub, "Report", self._named(worker_pb2.ReportRequest, withdraw=True)))
        with self._changed:
            self._leaving = True
            for grant in self._held.values():
                grant._gone.set()
            self._changed.wait_for(lambda: self.over or not self._held, patience)
        if not self.over:
            self._outbox.join()  # it ends when the session does
        self._end("it left")
        self.coordinator.call(WorkerServiceStub, "Leave", self._named(worker_pb2.LeaveRequest))

    # What the coordinator is told, in order, each until it knows. Only one thread tells.

    def _named(self, request: Any, **fields: Any) -> Any:
        return request(session=self.id, secret=self._secret, **fields)

    def _report(self, grant: Grant, **what: Any) -> None:
        item = worker_pb2.ReportItem(keyspace=grant.place[0], partition=grant.place[1], epoch=grant.epoch, **what)
        self._outbox.put((WorkerServiceStub, "Report", self._named(worker_pb2.ReportRequest, items=[item])))

    def _abandon(self, place: Place, number: int) -> None:
        named = self._named(lock_pb2.AbandonLockRequest, lock=place[0], number=number)
        self._outbox.put((LockServiceStub, "Abandon", named))

    def _give_up(self, name: str, number: int) -> None:
        held = self._held.get((name,))
        if held and held._mark == number:
            self._lose(held, "nobody waits for it")
        self._abandon((name,), number)

    def _tell(self) -> None:
        while True:
            stub, method, request = self._outbox.get()
            while not self.over:
                try:
                    self.coordinator.call(stub, method, request)
                    break
                except Failed as failed:
                    if not failed.again:
                        break  # the session is over, which the stream says too, or the request is wrong
            self._outbox.task_done()

    # The lease. All of this under self._changed.

    def _expire(self) -> None:
        """An expired lease does not come back with a late acknowledgement: somebody may have seen that it was over."""
        with self._changed:
            if self._lease is not None and now() >= self._lease:
                self._end("its lease ran out")

    def _end(self, why: str) -> None:
        with self._changed:
            self.over = self.over or why
            for grant in list(self._held.values()):
                self._lose(grant, self.over)
            self._changed.notify_all()
            if self._stream:
                self._stream.cancel()

    def _lose(self, grant: Grant, why: str) -> None:
        with self._changed:
            grant._lost = grant._lost or why
            grant._gone.set()
            if self._held.get(grant.place) is grant:
                del self._held[grant.place]
            self._changed.notify_all()

    def _keep(self) -> None:
        """Streams, one after the other, until the session is over."""
        pause = 0.02
        while not self.over:
            try:
                with self._changed:
                    self._unanswered, self._picture, over = {}, None, threading.Event()
                    self._stream = WorkerServiceStub(self.coordinator.channel()).Attach(self._renewals(self._unanswered, over))
                for message in self._stream:
                    pause = 0.02
                    with self._changed:
                        self._expire()
                        if message.HasField("assignment"):
                            self._assigned(message.assignment)
                        elif message.HasField("acknowledgement"):
                            self._acknowledged(message.acknowledgement)
            except grpc.RpcError as error:
                failed = Failed.of(error)
                if failed.kind in (common.ERROR_KIND_SESSION_ENDED, common.ERROR_KIND_WRONG_SECRET):
                    self._end(str(failed))
                self.coordinator.turn(failed)
            over.set()
            with self._changed:
                self._grace = min(self._grace, now() + GRACE)
            time.sleep(pause * random.uniform(0.5, 1))
            pause = min(2 * pause, self.ttl / 12)
            self._expire()

    def _renewals(self, unanswered: Dict[int, float], over: threading.Event) -> Iterator[worker_pb2.AttachRequest]:
        """What a stream says. grpcio asks for the next when it has sent the last, from a thread of its own."""
        opening = self._named(worker_pb2.AttachRequest.Open, protocol=1, cluster=self.cluster)
        yield worker_pb2.AttachRequest(open=opening)
        number = 0
        while not self.over and not over.is_set():
            with self._changed:
                if unanswered and now() - min(unanswered.values()) > self.ttl / 3:
                    return self._stream.cancel()  # a silent connection is a dead one
                number += 1
                unanswered[number] = now()  # before it is sent: the coordinator begins to count later than this
            yield worker_pb2.AttachRequest(renew=worker_pb2.AttachRequest.Renew(number=number))
            over.wait(self.ttl / 6 * random.uniform(7 / 8, 1))

    def _acknowledged(self, ack: worker_pb2.Acknowledgement) -> None:
        sent = self._unanswered.pop(ack.number, None)
        if sent is None or self.over:
            return
        for older in [number for number in self._unanswered if number < ack.number]:
            del self._unanswered[older]
        for drain in ack.drains:
            grant = self._held.get((drain.keyspace, drain.partition))
            if grant and grant.epoch == drain.epoch:
                if grant._bound == float("inf"):
                    self._report(grant, revoke_seen={})
                # A bound never moves back, also when a new leader counts the drain in full.
                grant._bound = min(grant._bound, sent + drain.left_ms / 1000 * RATE - MARGIN)
                grant._gone.set()
        if ack.revision <= self._revision:  # it speaks of a picture that is known; one ahead of it extends nothing
            self._lease = max(self._lease or 0.0, sent + self.ttl * RATE - MARGIN)
            self._grace = float("inf")
            self._hand_out()

    def _hand_out(self) -> None:
        """To whoever waits for it. The first picture comes before the first acknowledgement, and until then there is no lease."""
        while self._lease is not None and self._fresh:
            grant = self._fresh.pop(0)
            if not isinstance(grant, Lock):
                self.grants.put(grant)
            elif grant._mark in self._asked:
                self._asked[grant._mark] = grant
        self._changed.notify_all()

    def _assigned(self, piece: worker_pb2.Assignment) -> None:
        if self._picture is None or (self._picture.revision, self._picture.complete) != (piece.revision, piece.complete):
            self._picture = worker_pb2.Assignment()  # one that was begun and not ended is no picture
        self._picture.MergeFrom(piece)
        if piece.more or self.over:
            return
        picture, self._picture = self._picture, None
        if picture.revision < self._revision:
            return  # of an older leader
        self._revision = picture.revision
        named = {(p.keyspace, p.partition): p.epoch for p in picture.held}
        named.update({(lock.lock,): lock.number for lock in picture.locks})
        gone = {(p.keyspace, p.partition): p.epoch for p in picture.gone}
        gone.update({(lock.lock,): lock.number for lock in picture.gone_locks})
        for place, grant in list(self._held.items()):
            if grant._mark <= gone.get(place, -1) or (picture.complete and grant._mark != named.get(place)):
                self._lose(grant, "the coordinator took it")
        for told in picture.held:
            self._believe((told.keyspace, told.partition), told.epoch, self._takeover.get(told.keyspace, 0), told)
        for told in picture.locks:
            self._believe((told.lock,), told.number, told.takeover, told)
        self._hand_out()

    def _believe(self, place: Place, mark: int, takeover: int, told: Any) -> None:
        held = self._held.get(place)
        if mark > self._marks.get(place, 0):  # else it is known, or was given back and this is its late word
            self._marks[place] = mark
            if held:
                self._lose(held, "it was granted anew")
            if len(place) == 1 and mark not in self._asked:
                return self._abandon(place, mark)  # nobody waits for this lock any more
            held = self._held[place] = (Lock if len(place) == 1 else Grant)(self, place, mark, takeover, told)
            self._fresh.append(held)
        if held and held._mark == mark and (self._leaving or getattr(told, "draining", False)):
            held._gone.set()
