"""Builds a wheel that installs a program as a script.

A wheel is a zip archive with a list of its files. Files under `NAME.data/scripts` are installed into the `bin` directory of the
environment. Only the standard library is used, so that the build needs no network.
"""

import argparse
import base64
import hashlib
import time
import zipfile
from pathlib import Path

NAME = "qo_cli"
EXECUTABLE = 0o100755
REGULAR = 0o100644

METADATA = """\
Metadata-Version: 2.4
Name: qo-cli
Version: {version}
Summary: A task queue whose only required infrastructure is an object store
License-Expression: MIT OR Apache-2.0
License-File: LICENSE-APACHE
License-File: LICENSE-MIT
License-File: THIRD-PARTY.txt
Requires-Python: >=3.8
Description-Content-Type: text/markdown

{description}"""

WHEEL = """\
Wheel-Version: 1.0
Generator: qo xtask
Root-Is-Purelib: false
Tag: {tag}
"""


def record_line(path, content):
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return f"{path},sha256={digest},{len(content)}"


def build(binary, version, platform, licences, description, epoch, out):
    tag = f"py3-none-{platform}"
    info = f"{NAME}-{version}.dist-info"
    files = [(f"{NAME}-{version}.data/scripts/qo", binary.read_bytes(), EXECUTABLE)]
    for licence in licences:
        files.append((f"{info}/licenses/{licence.name}", licence.read_bytes(), REGULAR))
    metadata = METADATA.format(version=version, description=description.read_text())
    files.append((f"{info}/METADATA", metadata.encode(), REGULAR))
    files.append((f"{info}/WHEEL", WHEEL.format(tag=tag).encode(), REGULAR))
    record = [record_line(path, content) for path, content, _ in files]
    record.append(f"{info}/RECORD,,")
    files.append((f"{info}/RECORD", ("\n".join(record) + "\n").encode(), REGULAR))

    # Zip archives cannot hold times before 1980.
    modified = max(time.gmtime(epoch)[:6], (1980, 1, 1, 0, 0, 0))
    wheel = out / f"{NAME}-{version}-{tag}.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for path, content, mode in files:
            entry = zipfile.ZipInfo(path, modified)
            entry.external_attr = mode << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, content)
    print(wheel)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", type=Path, required=True)
    parser.add_argument("--version", required=True)
    parser.add_argument("--platform", required=True, help="platform tag, such as manylinux_2_34_x86_64")
    parser.add_argument("--licence", type=Path, action="append", default=[], dest="licences")
    parser.add_argument("--description", type=Path, required=True)
    parser.add_argument("--epoch", type=int, required=True, help="time of all entries, in seconds since 1970")
    parser.add_argument("--out", type=Path, required=True)
    build(**vars(parser.parse_args()))


if __name__ == "__main__":
    main()
