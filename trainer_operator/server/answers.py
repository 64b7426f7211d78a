"""How the operator's server refuses: a status, one sentence, and when to try again."""

from aiohttp import web


def problem(status: int, message: str, *, retry_after: int | None = None) -> web.Response:
    """Answer with an error as JSON; `retry_after` is seconds."""
    headers = {"Retry-After": str(retry_after)} if retry_after is not None else None
    return web.json_response({"error": message}, status=status, headers=headers)
