"""Whether a folder is this user's alone: nobody else but root can write in it, or put another one in its place.

Whoever may write in a folder on the way can rename what is below and put something else there. So all of the way
counts, links on it included. A sticky folder (`/tmp`) may be written by others, who can't rename what is not theirs.
"""

from __future__ import annotations

import grp
import os
import pwd
import stat

ROOT = 0
MOST_LINKS = 40  # as Linux follows
ACCESS_LIST = "system.posix_acl_access"


def fault(folder: str) -> str | None:
    """Why what lies in a folder may not be this user's own, in a line; None where it is. What is not there yet is no
    fault.

    `folder` is absolute. Raises OSError where the way can't be followed.
    """
    here, rest, links = os.sep, _parts(folder), 0
    while (reason := _shared(here, last=not rest)) is None and rest:
        name = rest.pop()
        here, above = os.path.normpath(os.path.join(here, name)), here
        if name in (os.curdir, os.pardir):
            continue
        if not os.path.lexists(here):
            return None
        if os.lstat(here).st_uid not in (ROOT, os.geteuid()):
            return f"{here}: belongs to another user"
        if os.path.islink(here):
            links += 1
            if links > MOST_LINKS:
                return f"{here}: a link after {MOST_LINKS} others"
            target = os.readlink(here)
            rest += _parts(target)
            here = os.sep if os.path.isabs(target) else above
    return reason


def alone(status: os.stat_result, at: str | int) -> bool:
    """Whether nobody but its owner and root may write what has this status, which lies at a path (or a descriptor)."""
    return not status.st_mode & stat.S_IWOTH and (not status.st_mode & stat.S_IWGRP or _private(status.st_gid, at))


def _parts(path: str) -> list[str]:
    """The names of a path, the first one last."""
    return [name for name in reversed(path.split(os.sep)) if name]


def _shared(folder: str, last: bool) -> str | None:
    """What is wrong with a folder on the way, or at its end, where all is this user's own."""
    status = os.lstat(folder)
    if not stat.S_ISDIR(status.st_mode):
        return f"{folder}: is no folder"
    if status.st_uid not in ((os.geteuid(),) if last else (ROOT, os.geteuid())):
        return f"{folder}: belongs to another user"
    if not alone(status, folder) and (last or not status.st_mode & stat.S_ISVTX):
        return f"{folder}: other users may write there"
    return None


def _private(group: int, at: str | int) -> bool:
    """Whether a group is this user's own, as many systems make one for
    each user, and no access list gives others its rights.
    """
    try:
        user, entry = pwd.getpwuid(os.geteuid()), grp.getgrgid(group)
    except KeyError:
        return False
    try:
        listed = ACCESS_LIST in os.listxattr(at)
    except OSError:  # the file system has none
        listed = False
    personal = user.pw_gid == group and entry.gr_name == user.pw_name
    return personal and set(entry.gr_mem) <= {user.pw_name} and not listed
