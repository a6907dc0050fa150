"""Asking the coordinator from Python, over gRPC: the partition of a key, and calls that find the leader.

It is written to be read beside proto/ringfence/v1, and to be copied. It needs grpcio (Debian: python3-grpcio), Linux for its clock, and
the messages that `protoc` makes of the contract; example.py says how. Those are a package called `ringfence`, so no module here can be.
"""

import random
import threading
import time
from typing import Any, List, NamedTuple

import grpc
from google.protobuf.message import DecodeError
from ringfence.v1 import common_pb2 as common, map_pb2
from ringfence.v1.map_pb2_grpc import MapServiceStub

ELSEWHERE = (common.ERROR_KIND_NOT_LEADER, common.ERROR_KIND_NO_LEADER, common.ERROR_KIND_UNAVAILABLE)


def now() -> float:
    """Seconds on a clock that runs on while the machine sleeps. CLOCK_MONOTONIC does not, and would show a lease that is over."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def siphash(key: bytes) -> int:
    """SipHash-2-4 with a zero key: proto/PARTITIONS.md."""
    mask = (1 << 64) - 1
    v0, v1, v2, v3 = 0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573

    def rounds(count: int) -> None:
        nonlocal v0, v1, v2, v3
        rotl = lambda x, by: (x << by | x >> (64 - by)) & mask
        for _ in range(count):
            v0, v2 = (v0 + v1) & mask, (v2 + v3) & mask
            v1, v3 = rotl(v1, 13) ^ v0, rotl(v3, 16) ^ v2
            v0, v2 = (rotl(v0, 32) + v3) & mask, (v2 + v1) & mask
            v1, v3 = rotl(v1, 17) ^ v2, rotl(v3, 21) ^ v0
            v2 = rotl(v2, 32)

    tail = len(key) % 8
    last = key[len(key) - tail :].ljust(7, b"\0") + bytes([len(key) & 0xFF])
    for word in [key[i : i + 8] for i in range(0, len(key) - tail, 8)] + [last]:
        m = int.from_bytes(word, "little")
        v3 ^= m
        rounds(2)
        v0 ^= m
    v2 ^= 0xFF
    rounds(4)
    return v0 ^ v1 ^ v2 ^ v3


def partition_of(key: bytes, partitions: int, split_from: int = 0) -> int:
    """The partition of a key, in a keyspace with these `partitions` and `split_from` (0: none is being split)."""
    if not split_from:
        return siphash(key) % partitions
    number = siphash(key) % (2 * split_from)
    return number if number < partitions else number - split_from


class Failed(Exception):
    """A call that failed. `kind` is an ErrorKind, or 0 when nothing answered that speaks for a coordinator."""

    def __init__(self, message: str, detail: common.ErrorDetail):
        super().__init__(message)
        self.detail, self.kind = detail, detail.kind

    @property
    def again(self) -> bool:
        """Whether another node, or a later moment, may do. All calls of this client may be sent again: they carry a nonce, a
        number or an epoch. One that carries a RequestId (LockService.Break, AdminService) is repeated with the same one."""
        return self.kind in (0, common.ERROR_KIND_UNKNOWN_OUTCOME) + ELSEWHERE

    @staticmethod
    def of(error: grpc.RpcError) -> "Failed":
        # The bytes are an ErrorDetail as it is, and not in a google.rpc.Status as elsewhere. Not every proxy leaves them alone.
        data = dict(error.trailing_metadata() or ()).get("grpc-status-details-bin", b"")
        try:
            return Failed(f"{error.code().name}: {error.details()}", common.ErrorDetail.FromString(data))
        except DecodeError:  # these details are somebody else's
            return Failed(f"{error.code().name}: {error.details()}", common.ErrorDetail())


class Owner(NamedTuple):
    partition: int
    epoch: int
    ready: bool
    worker: str
    address: str


class Coordinator:
    """The nodes of a cluster, HOST:PORT each, of which one leads."""

    def __init__(self, endpoints: List[str]):
        self._endpoints, self._at, self._channels = list(endpoints), endpoints[0], {}
        self._lock = threading.Lock()

    def channel(self) -> grpc.Channel:
        with self._lock:
            if self._at not in self._channels:
                # grpcio waits up to two minutes between its tries to connect, and takes a proxy from the environment.
                options = {"grpc.initial_reconnect_backoff_ms": 100, "grpc.max_reconnect_backoff_ms": 1000}
                options["grpc.enable_http_proxy"] = 0
                self._channels[self._at] = grpc.insecure_channel(self._at, list(options.items()))
            return self._channels[self._at]

    def turn(self, failed: Failed) -> None:
        """To where the leader is said to be, or else to the next node."""
        with self._lock:
            at = self._endpoints.index(self._at) if self._at in self._endpoints else -1
            self._at = failed.detail.leader.address or self._endpoints[(at + 1) % len(self._endpoints)]

    def call(self, stub: Any, method: str, request: Any, patience: float = 10.0) -> Any:
        """One call, tried at one node after the other for so many seconds."""
        until, pause = now() + patience, 0.02
        while True:
            try:
                return getattr(stub(self.channel()), method)(request, timeout=min(2.0, patience))
            except grpc.RpcError as error:
                failed = Failed.of(error)
                if not failed.again or now() >= until:
                    raise failed from None
                self.turn(failed)
            time.sleep(pause * random.uniform(0.5, 1))
            pause = min(2 * pause, 0.5)

    def lookup(self, keyspace: str, key: bytes) -> Owner:
        """Who owns a key, by the leader's confirmed account."""
        request = map_pb2.LookupRequest(keyspace=keyspace, key=key)
        entry = self.call(MapServiceStub, "Lookup", request).entry
        return Owner(entry.partition, entry.epoch, entry.ready, entry.owner.worker, entry.owner.address)
