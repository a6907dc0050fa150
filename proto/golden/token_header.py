"""Reads the header ringfence-token as ../HEADER.md says, and checks itself against token_header.tsv.

    python3 token_header.py

It needs nothing but Python, and is short enough to be carried over to another language.
"""

import pathlib
import re
import sys

MAX_TOKENS = 16
MAX_BYTES = 2495
MAX_EPOCH = 2**53 - 1
MAX_PARTITION = 2**32 - 1

NAME = r"[a-z0-9][a-z0-9._-]{0,62}"
NUMBER = r"0|[1-9][0-9]{0,15}"
TOKEN = re.compile(rf"({NAME})/(?:({NAME})/({NUMBER})|@locks/({NAME}))@([1-9][0-9]{{0,15}})")
PLAIN = re.compile(rb"[a-z0-9 ._/@-]*")


class Refused(Exception):
    """Why a value is not one of this header."""


def read(value: bytes) -> list[tuple[str, str, int]]:
    """The tokens of a value, each as (cluster, scope, epoch)."""
    if not value:
        raise Refused("empty")
    if len(value) > MAX_BYTES:
        raise Refused("too-long")
    if b"," in value:
        raise Refused("repeated")
    if not PLAIN.fullmatch(value):
        raise Refused("not-text")
    parts = value.decode("ascii").split(" ")
    if len(parts) > MAX_TOKENS:
        raise Refused("too-many")
    tokens, before = [], None
    for part in parts:
        match = TOKEN.fullmatch(part)
        if not match:
            raise Refused("token")
        cluster, keyspace, partition, lock, epoch = match.groups()
        if int(epoch) > MAX_EPOCH or int(partition or 0) > MAX_PARTITION:
            raise Refused("token")
        # Partitions before locks; names by their bytes, partitions by number.
        order = (1, lock, 0) if lock else (0, keyspace, int(partition))
        if before:
            if before[0] != cluster:
                raise Refused("clusters")
            if before[1] == order:
                raise Refused("twice")
            if before[1] > order:
                raise Refused("order")
        before = (cluster, order)
        tokens.append((cluster, f"@locks/{lock}" if lock else f"{keyspace}/{partition}", int(epoch)))
    return tokens


def shown(text: str) -> bytes:
    """The bytes that a line of the golden file shows."""
    text = re.sub(r"\{(\d+)\*([^}]*)\}", lambda m: m[2] * int(m[1]), text)
    return re.sub(r"\\x([0-9a-f]{2})", lambda m: chr(int(m[1], 16)), text).encode("latin-1")


def main() -> int:
    wrong, seen = 0, 0
    for line in pathlib.Path("token_header.tsv").read_text(encoding="ascii").splitlines():
        if line.startswith("#"):
            continue
        verdict, value, means = line.split("\t")
        try:
            got = "good", ";".join(f"{scope}@{epoch}" for _, scope, epoch in read(shown(value)))
        except Refused as refused:
            got = "bad", str(refused)
        seen += 1
        if got != (verdict, means):
            wrong += 1
            print(f"{line}: read as {got}")
    print(f"{seen} values, {wrong} read otherwise than the file says")
    return 1 if wrong or seen < 40 else 0


if __name__ == "__main__":
    sys.exit(main())
