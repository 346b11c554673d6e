"""Files and processes that a child may touch, by Linux's Landlock: writes go to its own folder and nowhere else.

It also keeps a child from tracing or signalling processes outside, and where the kernel is new enough from TCP and
abstract sockets: a second fence beside the filter of system calls.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same on every architecture
_VERSION_FLAG, _PATH_BENEATH = 1, 1
_WRITE_FILE = 1 << 1
_REMOVE_AND_MAKE = sum(1 << bit for bit in range(4, 13))  # from REMOVE_DIR to MAKE_SYM
_REFER, _TRUNCATE = 1 << 13, 1 << 14  # of the second and the third version
_BIND_AND_CONNECT_TCP = 3  # of the fourth
_ABSTRACT_SOCKETS_AND_SIGNALS = 3  # of the sixth


def write_only_below(*folders: str) -> str | None:
    """Restrict this process and its descendants; None once it holds, else why it does not.

    Needs no_new_privs, and to be called while there is one thread.
    """
    if sys.platform != "linux":
        return f"Landlock is not there on {sys.platform}"
    libc = ctypes.CDLL(None, use_errno=True)
    version = libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _VERSION_FLAG)
    if version < 1:
        return f"Landlock: {os.strerror(ctypes.get_errno())}"
    files = _WRITE_FILE | _REMOVE_AND_MAKE | (_REFER if version >= 2 else 0) | (_TRUNCATE if version >= 3 else 0)
    attributes = struct.pack("=Q", files)
    if version >= 4:
        attributes += struct.pack("=Q", _BIND_AND_CONNECT_TCP)
    if version >= 6:
        attributes += struct.pack("=Q", _ABSTRACT_SOCKETS_AND_SIGNALS)
    ruleset = libc.syscall(_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), 0)
    if ruleset < 0:
        return f"Landlock: {os.strerror(ctypes.get_errno())}"
    try:
        for path in (*folders, os.devnull):
            allowed = files & (_WRITE_FILE | _TRUNCATE) if path == os.devnull else files
            place = os.open(path, os.O_PATH | os.O_CLOEXEC)
            try:
                rule = struct.pack("=Qi", allowed, place)
                if libc.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, rule, 0) != 0:
                    return f"Landlock: {path}: {os.strerror(ctypes.get_errno())}"
            finally:
                os.close(place)
        if libc.syscall(_RESTRICT_SELF, ruleset, 0) != 0:
            return f"Landlock: {os.strerror(ctypes.get_errno())}"
    except OSError as error:
        return f"Landlock: {error}"
    finally:
        os.close(ruleset)
    return None
