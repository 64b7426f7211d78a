"""The senders that a configuration asks for."""

from trainer_operator.notify.configuration import Configuration
from trainer_operator.notify.notifier import Service


def services_of(configuration: Configuration) -> tuple[Service, ...]:
    """Make a sender for each service; nothing is connected or read yet."""
    private = frozenset(configuration.private_hosts)
    made = []
    for each in configuration.services:
        if each.alertmanager is not None:
            from trainer_operator.notify.alertmanager import AlertmanagerSender

            alerts = AlertmanagerSender(each.alertmanager.url, private, each.alertmanager.token_file)
            made.append(Service(each.name, alerts.send, each.limits))
        elif each.url_file is not None:
            from trainer_operator.notify.apprise_sender import AppriseSender

            made.append(Service(each.name, AppriseSender(each.url_file, private).send, each.limits))
    return tuple(made)
