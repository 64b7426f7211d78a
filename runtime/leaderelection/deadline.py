"""The end of a process whose lease has run out, kept by the kernel (L6, L9).

The fence is asked right before a write is sent, but a process that is stopped between the two would send when it
wakes, however long that took: no check of ours can be the last thing before the system call. So the kernel holds a
timer for the moment at which a rival may write. Its signal goes to the thread that sends, where it is handled before
the next instruction of that thread, even on waking from SIGSTOP, and the handler is the system's own `_exit`: neither
the interpreter nor its lock takes part.

Linux only; elsewhere the fence alone stands between a process and its late writes.
"""

import ctypes
import math
import signal
import sys
import threading
from typing import Final

__all__ = ["EXIT_CODE", "ProcessDeadline"]

EXIT_CODE: Final = 64
"""How a process ends that outlived its lease standing still: the number of the signal, which `_exit` is handed."""

_CLOCK_MONOTONIC: Final = 1
_SIGEV_THREAD_ID: Final = 4
_TIMER_ABSTIME: Final = 1


class _SignalEvent(ctypes.Structure):
    """`struct sigevent` for a signal to one thread."""

    _fields_ = (
        ("value", ctypes.c_void_p),
        ("signal", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("thread", ctypes.c_int),
        ("rest", ctypes.c_byte * 64),
    )


class _TimerTimes(ctypes.Structure):
    """`struct itimerspec`."""

    _fields_ = (
        ("interval_seconds", ctypes.c_long),
        ("interval_nanoseconds", ctypes.c_long),
        ("seconds", ctypes.c_long),
        ("nanoseconds", ctypes.c_long),
    )


class ProcessDeadline:
    """Ends this process at a moment that is put off again and again, unless it is called off.

    Make it on the thread that sends what has to be over by then. `extend` and `call_off` may be called on any thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._libc: ctypes.CDLL | None = None
        self._timer = ctypes.c_void_p()
        self._is_called_off = False
        if sys.platform == "linux" and sys.maxsize > 2**32:
            self._make_timer()

    @property
    def is_kept(self) -> bool:
        """Whether this system can keep a deadline."""
        return self._libc is not None

    def extend(self, until: float) -> None:
        """End the process at `until` (monotonic) and no earlier; at once if that has passed."""
        with self._lock:
            if not self._is_called_off:
                self._set(until)

    def call_off(self) -> None:
        """Let the process live on, for good. Idempotent."""
        with self._lock:
            if not self._is_called_off:
                self._is_called_off = True
                self._set(0.0)

    def _make_timer(self) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        number = int(signal.SIGRTMAX)
        if number != EXIT_CODE or not hasattr(libc, "timer_create"):
            return
        libc.signal.argtypes = (ctypes.c_int, ctypes.c_void_p)
        libc.signal.restype = ctypes.c_void_p
        libc.timer_settime.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
        event = _SignalEvent(signal=number, notify=_SIGEV_THREAD_ID, thread=threading.get_native_id())
        # The handler is in place before the timer: the first process of a container is spared unhandled signals.
        libc.signal(number, ctypes.cast(libc._exit, ctypes.c_void_p))
        if libc.timer_create(_CLOCK_MONOTONIC, ctypes.byref(event), ctypes.byref(self._timer)) == 0:
            self._libc = libc

    def _set(self, until: float) -> None:
        if self._libc is None:
            return
        fraction, seconds = math.modf(until)
        times = _TimerTimes(seconds=int(seconds), nanoseconds=int(fraction * 1e9))
        if self._libc.timer_settime(self._timer, _TIMER_ABSTIME, ctypes.byref(times), None) != 0:
            raise OSError(ctypes.get_errno(), "the deadline of the process cannot be set")
