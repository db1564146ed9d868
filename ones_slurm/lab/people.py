"""The passwd, group, shadow and hosts files that the lab's hosts see in place of the machine's own.

No user is created on the machine: the files are the system's lines plus ours, mounted over /etc inside the lab.
"""

from pathlib import Path

from .spec import USERS


def account_files() -> dict[str, tuple[str, int]]:
    """Text and mode of each file. A system user with one of our names or uids gives way inside the lab."""
    names = {user.name for user in USERS}
    uids = {str(user.uid) for user in USERS}

    def others(path: str) -> list[list[str]]:
        lines = [line.split(":") for line in Path(path).read_text().splitlines() if ":" in line]
        return [fields for fields in lines if fields[0] not in names]

    def with_ids(path: str) -> list[str]:
        return [":".join(fields) for fields in others(path) if fields[2] not in uids]

    passwd = [f"{u.name}:x:{u.uid}:{u.uid}:{u.name} of the lab:/home/{u.name}:/bin/bash" for u in USERS]
    group = [f"{u.name}:x:{u.uid}:" for u in USERS]
    # slurmd asks `su` for a user's environment, and su wants a line here; "*" lets nobody log in with a password.
    # The machine's own passwords stay out of the lab's folder.
    shadow = [f"{name}:*:20000::::::" for name in (*(f[0] for f in others("/etc/shadow")), *sorted(names))]
    return {
        "passwd": (_text(with_ids("/etc/passwd") + passwd), 0o644),
        "group": (_text(with_ids("/etc/group") + group), 0o644),
        "shadow": (_text(shadow), 0o600),
    }


def hosts_file(addresses: dict[str, str]) -> str:
    """Each host resolves everywhere: slurmctld stalls 10 s for each host of an srun that it cannot resolve."""
    return _text(["127.0.0.1 localhost"] + [f"{address} {name}" for name, address in addresses.items()])


def _text(lines: list[str]) -> str:
    return "\n".join(lines) + "\n"
