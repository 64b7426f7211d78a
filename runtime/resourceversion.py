"""Which of two resource versions is newer (R2).

The API lets a client compare versions of one kind (KEP-5504): longer is newer, equal lengths compare as text. A
version with a leading zero or another character than a digit is opaque; then there is no answer, and callers must
not guess.
"""

__all__ = ["compare", "is_comparable", "newer"]


def is_comparable(version: str) -> bool:
    """Tell whether a version is a positive decimal number without leading zeros."""
    return (
        version.isascii()
        and version.isdigit()
        and not (len(version) > 1 and version[0] == "0")
        and version != "0"
    )


def compare(first: str, second: str) -> int | None:
    """Return -1, 0 or 1 as `first` is older than, equal to or newer than `second`; None when that is unknowable."""
    if first == second and first:
        return 0
    if not (is_comparable(first) and is_comparable(second)):
        return None
    return -1 if (len(first), first) < (len(second), second) else 1


def newer(first: str, second: str) -> str:
    """Return the newer of two versions; the second when they cannot be compared, as it came later."""
    return first if compare(first, second) == 1 else second
