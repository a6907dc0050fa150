import sys

from coordinator import partition_of

agree = 0
for path in sys.argv[1:]:
    for line in open(path):
        if line.startswith("#"):
            continue
        key, *numbers = line.rstrip("\n").split("\t")
        before, now, partition = map(int, numbers if len(numbers) == 3 else [numbers[0], *numbers])
        # 0 says that nothing is being split, and so does a number that has not changed.
        answer = partition_of(bytes.fromhex(key), now, before if before != now else 0)
        if answer != partition:
            print(f"another partition: {key} {numbers} {answer}")
            sys.exit()
        agree += 1
print(f"{agree} agree")
