"""Settings: one clear sentence for each thing that can be wrong."""

import pytest

from trainer_operator.agent.launcher.environment import child_environment
from trainer_operator.agent.settings import BadSettings, read_settings

GOOD = {
    "TRAINER_NAME": "digits",
    "TRAINER_NAMESPACE": "default",
    "TRAINER_UID": "uid",
    "TRAINER_ROLE": "ps",
    "TRAINER_INDEX": "1",
    "TRAINER_POD_UID": "pod",
    "TRAINER_POD_IP": "10.0.0.3",
    "TRAINER_OPERATOR_URLS": "https://a:9443, https://b:9443/",
    "TRAINER_STORE": "/trainer/checkpoints/default/digits-12345678",
}


def test_settings_are_read():
    """PS4."""
    settings = read_settings(GOOD, folder="/agent")
    assert settings.identity.trainer == "default/digits"
    assert settings.urls == ("https://a:9443", "https://b:9443")
    assert (settings.port, settings.grace, settings.linger) == (29390, 30.0, 600.0)
    assert settings.ring_folder == "/agent/ring"


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("TRAINER_NAME", "", "TRAINER_NAME is not set"),
        ("TRAINER_ROLE", "boss", "TRAINER_ROLE is 'boss'"),
        ("TRAINER_INDEX", "-1", "TRAINER_INDEX is '-1'"),
        ("TRAINER_AGENT_PORT", "http", "TRAINER_AGENT_PORT is 'http'"),
        ("TRAINER_STORE", "relative/path", "must be an absolute directory"),
        ("TRAINER_STORE", "gs://bucket/t", "TRAINER_STORE: 'gs://bucket/t' names no store"),
        ("TRAINER_STORE", "s3://bucket/../t", "could leave the store"),
        ("TRAINER_OPERATOR_URLS", "http://a", "only https:// is allowed"),
    ],
)
def test_a_bad_setting_is_named(name, value, sentence):
    """PS4."""
    with pytest.raises(BadSettings, match=sentence):
        read_settings({**GOOD, name: value}, folder="/agent")


def test_the_operator_s_environment_wins_and_the_way_to_the_operator_stays_with_the_agent():
    """PS4, ME2, AA4."""
    settings = read_settings(GOOD, folder="/agent")
    inherited = {
        **GOOD,
        "RANK": "users",
        "TRAINER_RANK": "users",
        "PYTHONPATH": "/app",
        "TRAINER_TOKEN_FILE": "/t",
    }
    go = {
        "epoch": 4,
        "psEpoch": 2,
        "rank": 1,
        "world": 3,
        "env": {"RANK": "1"},
        "restoreStep": 40,
        "ring": True,
    }
    child = child_environment(inherited, go, settings=settings, socket_path="/agent/s.sock", port=31000)
    assert (child["RANK"], child["TRAINER_RANK"], child["TRAINER_WORLD_SIZE"]) == ("1", "1", "3")
    assert (child["TRAINER_EPOCH"], child["TRAINER_PS_EPOCH"], child["TRAINER_RESTORE_STEP"]) == (
        "4",
        "2",
        "40",
    )
    assert child["PYTHONPATH"] == "/agent:/app"
    assert child["TRAINER_PORT"] == "31000"
    assert "TRAINER_TOKEN_FILE" not in child
    assert "TRAINER_OPERATOR_URLS" not in child
