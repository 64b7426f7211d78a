"""What the file of a service may hold: an apprise URL of one of three schemes, with nothing that weakens it (NT2). Pure."""

from dataclasses import dataclass, field
from urllib.parse import parse_qsl, urlsplit

SCHEMES = ("slack", "workflows", "mailtos")
FORBIDDEN = {
    "verify": "certificates are always verified",
    "redirect": "redirects are never followed",
    "template": "templates belong into the configuration",
    "pgppub": "keys are not read from elsewhere",
    "pgpkey": "keys are not read from elsewhere",
    "pgpprv": "keys are not read from elsewhere",
    "wkd": "keys are not read from elsewhere",
}
SLACK_HOST = "hooks.slack.com"


class TargetInvalid(ValueError):
    """The URL is not one that messages go to; the message never repeats it, since it holds credentials."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where messages go."""

    scheme: str
    hosts: frozenset[str]
    """Hosts that are connected to, as far as the URL names them."""
    url: str = field(repr=False)


def read_target(text: str) -> Target:
    """Read the content of the file.

    Raises: TargetInvalid.
    """
    url = text.strip()
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        query = dict(parse_qsl(parts.query))
    except ValueError:
        raise TargetInvalid("it is no URL") from None
    if parts.scheme not in SCHEMES:
        raise TargetInvalid(f"its scheme is none of {', '.join(f'{scheme}://' for scheme in SCHEMES)}")
    for name in sorted(query):
        if name.lower() in FORBIDDEN:
            raise TargetInvalid(f"it has the parameter {name}; {FORBIDDEN[name.lower()]}")
    if parts.scheme == "mailtos" and query.get("mode", "starttls").lower() not in {"starttls", "ssl"}:
        raise TargetInvalid("its mode is neither starttls nor ssl; mail is sent over TLS only")
    if any(each.isspace() for each in url):
        raise TargetInvalid("it holds more than one line or a blank")
    if parts.scheme == "slack":
        return Target(parts.scheme, frozenset({SLACK_HOST}), url)
    return Target(parts.scheme, frozenset({query.get("smtp") or host}), url)
