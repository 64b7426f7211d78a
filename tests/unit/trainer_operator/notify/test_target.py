"""What the file of a service may hold."""

import pytest

from trainer_operator.notify.target import TargetInvalid, read_target

MAIL = "mailtos://user:hunter2@example.com/ops@example.com"
FLOW = "workflows://flows.example.com/abc/hunter2"


@pytest.mark.parametrize(
    ("url", "scheme", "host"),
    [
        ("slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/#ops\n", "slack", "hooks.slack.com"),
        (FLOW, "workflows", "flows.example.com"),
        (MAIL, "mailtos", "example.com"),
        (MAIL + "?smtp=relay.internal&mode=ssl", "mailtos", "relay.internal"),
    ],
)
def test_three_schemes_are_taken_and_their_hosts_are_known(url, scheme, host):
    """NT2."""
    found = read_target(url)
    assert (found.scheme, found.hosts) == (scheme, {host})


@pytest.mark.parametrize(
    "url",
    [
        "json://169.254.169.254/",
        "mailto://user:hunter2@example.com",
        "msteams://hunter2",
        "file:///etc/passwd",
        "gopher://hunter2",
        "https://hooks.slack.com/services/hunter2",
        "",
        "http://[hunter2",
        FLOW + "?verify=no",
        FLOW + "?redirect=yes",
        FLOW + "?template=/etc/passwd",
        MAIL + "?mode=insecure",
        MAIL + "?pgp=yes&pgppub=https://hunter2.example",
        FLOW + "\n" + FLOW,
    ],
)
def test_everything_else_is_refused_without_telling_what_it_holds(url):
    """NT2, NT5, ATK16, RD2."""
    with pytest.raises(TargetInvalid) as raised:
        read_target(url)
    assert "hunter2" not in str(raised.value)


def test_a_target_does_not_show_its_credentials():
    """RD1."""
    assert "hunter2" not in repr(read_target(MAIL))
