"""Python run as somebody else, also where that user may not read our Python: imported first, then dropped."""

import subprocess
import sys

NOBODY = 65534


def python_as(uid: int, imports: str, script: str) -> str:
    """Runs `script` under `uid` in a process of its own, after `imports` ran as us; what it printed."""
    drop = f"import os; os.setgroups([]); os.setgid({uid}); os.setuid({uid})"
    done = subprocess.run(
        [sys.executable, "-c", f"{imports}\n{drop}\n{script}"], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
