"""Adds persons with pictures to a directory, deletes most pictures, and reads all: ldap_load.py PORT PREFIX."""

from __future__ import annotations

import base64
import json
import random
import subprocess
import sys
import time

CLIENTS, PERSONS = 4, 100  # persons of each client
ROOT = "dc=example,dc=org"
port, prefix = sys.argv[1:]
server = ["-x", "-H", f"ldap://127.0.0.1:{port}"]
owner = [*server, "-D", f"cn=admin,{ROOT}", "-w", "secret"]


def changes(client: int) -> str:
    """Return the additions and deletions of one client as LDIF."""
    draw = random.Random(f"{prefix} {client}")
    names = [f"{prefix}{client}x{number}" for number in range(PERSONS)]
    lines = []
    for name in names:
        picture = base64.b64encode(draw.randbytes(draw.choice((2000, 30000, 200000, 600000)))).decode()
        lines += [f"dn: uid={name},{ROOT}", "changetype: add", "objectClass: inetOrgPerson", f"uid: {name}"]
        lines += [f"cn: {name}", f"sn: {name}", f"jpegPhoto:: {picture}", ""]
    for number, name in enumerate(names):
        if number % 8:
            lines += [f"dn: uid={name},{ROOT}", "changetype: modify", "delete: jpegPhoto", ""]
    return "\n".join(lines) + "\n"


texts = [changes(client) for client in range(CLIENTS)]
began = time.perf_counter()
base = f"dn: {ROOT}\nobjectClass: domain\ndc: example\n"
# The second time the entry exists already.
subprocess.run(["ldapadd", *owner], input=base, capture_output=True, text=True, check=False)
running = [subprocess.Popen(["ldapmodify", *owner], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) for _ in texts]
for process, words in zip(running, texts, strict=True):
    assert process.stdin is not None
    process.stdin.write(words.encode())
    process.stdin.close()
failed = sum(process.wait() != 0 for process in running)
search = ["ldapsearch", *server, "-LLL", "-b", ROOT, "(objectClass=inetOrgPerson)"]
readers = [subprocess.Popen(search, stdout=subprocess.DEVNULL) for _ in range(CLIENTS)]
failed += sum(process.wait() != 0 for process in readers)
operations = CLIENTS * (2 * PERSONS + 1)
seconds = time.perf_counter() - began
print(json.dumps({"operations": operations, "throughput_per_s": operations / seconds, "load_errors": failed}))
