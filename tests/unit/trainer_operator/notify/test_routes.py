"""Who hears of what, and what a user is told whose route leads nowhere."""

from trainer_operator.api.trainer import Notifications
from trainer_operator.notify.routes import Services, fault, routed
from trainer_operator.notify.triggers import Severity

THERE = Services(frozenset({"team", "alerts"}), {"alerts": Severity.Critical})


def wanted(*routes):
    return Notifications.read({"routes": [{"name": f"r{n}", **route} for n, route in enumerate(routes)]})


def test_a_trainer_without_routes_goes_by_the_administrators():
    """NT1."""
    assert routed(None, THERE) == {"alerts": Severity.Critical}


def test_of_two_routes_to_a_service_the_wider_one_counts():
    routes = wanted({"service": "team", "severity": "Critical"}, {"service": "team", "severity": "Info"})
    assert routed(routes, THERE) == {"team": Severity.Info}


def test_a_route_to_a_service_that_is_not_there_is_told_with_those_that_are():
    routes = wanted({"service": "team"}, {"service": "tema"})
    assert routed(routes, THERE) == {"team": Severity.Warning}
    assert fault(routes, THERE) == (
        "route r1 names service tema, which does not exist; services are: alerts, team"
    )


def test_without_any_service_the_user_is_told_that():
    assert "the administrator has configured no service" in fault(wanted({"service": "team"}), Services())
