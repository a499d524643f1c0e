"""The program on the host: does what it is told, and writes down what it does."""

import base64
import json
import os
import sys
import time


def main() -> int:
    told = json.loads(sys.argv[1])
    if "file" in told:  # An argument holds only so much.
        with open(told["file"]) as file:  # noqa: PTH123 - starts faster without pathlib
            told = json.load(file)
    effects = os.open(told["effects"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def write(line: str) -> None:
        os.write(effects, line.encode() + b"\n")

    write(f"started {told['id']}")
    if sys.argv[2:]:
        write("echoed " + ",".join(os.fsencode(each).hex() for each in sys.argv[2:]))
    left = base64.b64decode(told["prints"])
    while left:
        left = left[os.write(1, left) :]
    time.sleep(told["sleep_s"])
    write(f"finished {told['id']}")
    return int(told["exit_code"])


if __name__ == "__main__":
    sys.exit(main())
