"""What a child gives up before it reads its first document: network, privileges, memory, files, core dumps.

Everything here works for an unprivileged user. Linux on x86_64 and aarch64 gets all of it; elsewhere the limits of
``resource`` remain, and ``confine`` says what is missing.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import platform
import resource
import signal
import socket
import struct
import sys
from dataclasses import dataclass
from errno import EACCES, EPERM

from pipeline.extract.pool import landlock

OPEN_FILES = 256
HEAVY_NICE = 10
_PR_SET_PDEATHSIG, _PR_SET_SECCOMP, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 1, 22, 36, 38
_SECCOMP_MODE_FILTER = 2
_CAPABILITY_VERSION = 0x20080522
_KEPT_CAPABILITIES = 1 << 1 | 1 << 2  # CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH: an installation of another user's
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_LOAD, _IF_EQUAL, _IF_AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06  # classic BPF
_NUMBER, _ARCH, _FIRST_ARGUMENT = 0, 4, 16  # offsets in struct seccomp_data, little endian
_X32 = 0x40000000  # bit of the x32 ABI, which would pass a filter of plain numbers


@dataclass(frozen=True)
class _Abi:
    """Numbers of system calls. ``with_family`` take an address family first and may only ask for AF_UNIX.

    Refused altogether: connecting (also to local daemons that would fetch for others), io_uring, which opens sockets
    past any filter, and the ways into other processes and their sockets.
    """

    arch: int
    with_family: tuple[int, ...]
    refused: tuple[int, ...]


_ABIS = {
    # socket, socketpair | connect, io_uring_setup, ptrace, process_vm_readv, process_vm_writev, pidfd_getfd
    "x86_64": _Abi(0xC000003E, (41, 53), (42, 425, 101, 310, 311, 438)),
    "aarch64": _Abi(0xC00000B7, (198, 199), (203, 425, 117, 270, 271, 438)),
}


def fence(parent: int) -> list[str]:
    """Take the network, others' files and processes from this process and its descendants; end it with ``parent``.

    Must run while there is one thread. Returns what this platform could not give, as sentences for the log; empty
    where all holds.
    """
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(0)  # it died before it could be told
        # Orphans of a reader's subprocess come to this process and are ended with the document.
        libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")  # where memory runs out, a document goes before the index
        libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)  # what the two fences below ask for
        _drop_capabilities(libc)
    missing: list[str] = []
    fault = landlock.write_only_below(os.getcwd())
    if fault:
        missing.append(f"files: documents are read without a limit on where files are written ({fault})")
    fault = _refuse_network()
    if fault:
        missing.append(f"network: documents are read without a filter of system calls ({fault})")
    return missing


def _drop_capabilities(libc: ctypes.CDLL) -> None:
    """Where the pool runs as root: what is left of it may read files as before, and is no more than their owner."""
    header = struct.pack("=Ii", _CAPABILITY_VERSION, 0)
    sets = ctypes.create_string_buffer(24)
    if libc.capget(header, sets) != 0:
        return
    # Effective, permitted and inheritable of the first 32 capabilities, then of the others.
    low = [word & _KEPT_CAPABILITIES for word in struct.unpack("=6I", sets.raw)[:3]]
    libc.capset(header, struct.pack("=6I", *low, 0, 0, 0))


def limit(*, heavy: bool, memory: int, file_bytes: int) -> None:
    """Bound memory above what the process has now and the size of a written file, both in bytes; no core dumps."""
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_FSIZE, file_bytes)
    _limit(resource.RLIMIT_NOFILE, OPEN_FILES)
    if heavy:
        os.nice(HEAVY_NICE)
        # The tree's resident memory is watched from outside; this stops one allocation that is faster than the watch.
        # Address space would be the wrong measure: runtimes of subprocesses reserve much and use little.
        _limit(resource.RLIMIT_DATA, _pages(5) + 2 * memory)
    else:
        _limit(resource.RLIMIT_AS, _pages(0) + memory)


def allow_cpu(seconds: float) -> None:
    """Backstop for a parent that is itself stopped: SIGXCPU well after the parent's own limit."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    soft = math.ceil(used.ru_utime + used.ru_stime + seconds * 1.25 + 2)
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    if hard == resource.RLIM_INFINITY or soft <= hard:
        resource.setrlimit(resource.RLIMIT_CPU, (soft, hard))


def _limit(which: int, value: int) -> None:
    hard = resource.getrlimit(which)[1]
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    # macOS knows some of these limits by name only.
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(which, (value, value))


def _pages(field: int) -> int:
    """Bytes of a field of /proc/self/statm: 0 is the address space, 5 data and stack; a guess where it is absent."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[field]) * resource.getpagesize()
    except OSError:
        return 1 << 30


def _refuse_network() -> str | None:
    """None once the filter stands, else why it does not."""
    machine = platform.machine()
    abi = _ABIS.get(machine)
    if sys.platform != "linux" or abi is None:
        return f"none is known for {sys.platform} on {machine}"
    program = network_filter(abi)
    libc = ctypes.CDLL(None, use_errno=True)
    buffer = ctypes.create_string_buffer(program, len(program))
    header = _Program(len(program) // 8, ctypes.addressof(buffer))
    if libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(header), 0, 0) != 0:
        return f"seccomp: {os.strerror(ctypes.get_errno())}"
    return None


class _Program(ctypes.Structure):
    """struct sock_fprog"""

    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def network_filter(abi: _Abi) -> bytes:
    """A classic BPF program: EPERM for a foreign ABI, EACCES for what is refused, all else allowed."""
    code: list[tuple[int, int, int, int]] = [
        (_LOAD, 0, 0, _ARCH),
        (_IF_EQUAL, 1, 0, abi.arch),
        (_RETURN, 0, 0, _ERRNO | EPERM),
        (_LOAD, 0, 0, _NUMBER),
    ]
    if abi.arch == _ABIS["x86_64"].arch:
        code += [(_IF_AT_LEAST, 0, 1, _X32), (_RETURN, 0, 0, _ERRNO | EPERM)]
    for number in abi.refused:
        code += [(_IF_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ERRNO | EACCES)]
    for number in abi.with_family:
        code += [
            (_IF_EQUAL, 0, 4, number),
            (_LOAD, 0, 0, _FIRST_ARGUMENT),
            (_IF_EQUAL, 0, 1, socket.AF_UNIX),
            (_RETURN, 0, 0, _ALLOW),
            (_RETURN, 0, 0, _ERRNO | EACCES),
        ]
    code.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("=HBBI", *step) for step in code)
