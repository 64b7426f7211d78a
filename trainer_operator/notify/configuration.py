"""The administrator's file: services, templates and default routes (NT1, KZ4).

It names files with credentials, and holds none: those are keys of a mounted Secret (RD2).
"""

from pathlib import Path
from string import Template
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.alias_generators import to_camel

from runtime.errors import ConfigurationInvalid
from trainer_operator.api.meta import API_VERSION, LabelName
from trainer_operator.notify.destination import Limits
from trainer_operator.notify.message import BODY, TITLE, Templates, template_fault
from trainer_operator.notify.triggers import Severity, Trigger

KIND = "NotificationConfiguration"
MOST_SERVICES = 32


class _Strict(BaseModel):
    """Unknown keys are errors: a misspelt one would be without effect."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, frozen=True, extra="forbid")


class AlertmanagerConfig(_Strict):
    """An Alertmanager that takes alerts."""

    url: str
    """https://host[:port][/path]; http:// only for a host in privateHosts."""
    token_file: Path | None = None
    """File with a bearer token."""

    @model_validator(mode="after")
    def _is_url(self) -> Self:
        try:
            parts = urlsplit(self.url)
            _ = parts.port
        except ValueError:
            raise ValueError("url is no URL") from None
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment:
            raise ValueError("url must be https://host[:port][/path], or http:// for a host in privateHosts")
        if parts.username is not None or parts.password is not None:
            raise ValueError("url must not hold a user; use tokenFile")
        return self


class ServiceConfig(_Strict):
    """One service; exactly one of urlFile and alertmanager."""

    name: LabelName
    """What routes call it."""
    url_file: Path | None = None
    """File that holds a slack://, workflows:// or mailtos:// URL."""
    alertmanager: AlertmanagerConfig | None = None
    per_second: Annotated[float, Field(gt=0, le=100)] = 1.0
    """Messages a second in the long run. Default 1, as Slack allows."""
    burst: Annotated[int, Field(ge=1, le=100)] = 5
    """Messages at once. Default 5."""

    @model_validator(mode="after")
    def _has_one(self) -> Self:
        if (self.url_file is None) == (self.alertmanager is None):
            raise ValueError("give exactly one of urlFile and alertmanager")
        return self

    @property
    def limits(self) -> Limits:
        """Return how fast it takes messages."""
        return Limits(self.per_second, self.burst)


class TemplateConfig(_Strict):
    """Words of one trigger, for string.Template."""

    trigger: Trigger
    title: str = TITLE
    body: str = BODY

    @model_validator(mode="after")
    def _is_valid(self) -> Self:
        for name in ("title", "body"):
            fault = template_fault(getattr(self, name))
            if fault:
                raise ValueError(f"{name} {fault}")
        return self


class DefaultRoute(_Strict):
    """Who hears of Trainers that name no routes."""

    severity: Literal["Info", "Warning", "Critical"] = "Warning"
    service: LabelName


class Configuration(_Strict):
    """The whole file."""

    api_version: Literal["trainer.operator.kubeflow.org/v1alpha1"]
    kind: Literal["NotificationConfiguration"]
    private_hosts: Annotated[tuple[str, ...], Field(max_length=64)] = ()
    """Hosts inside private networks that messages may go to."""
    services: Annotated[tuple[ServiceConfig, ...], Field(max_length=MOST_SERVICES)] = ()
    templates: Annotated[tuple[TemplateConfig, ...], Field(max_length=64)] = ()
    default_routes: Annotated[tuple[DefaultRoute, ...], Field(max_length=MOST_SERVICES)] = ()

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        names = [service.name for service in self.services]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"service {twice[0]} is there twice")
        for route in self.default_routes:
            if route.service not in names:
                there = ", ".join(sorted(names)) or "none"
                raise ValueError(f"defaultRoutes names service {route.service}; services are: {there}")
        for service in self.services:
            url = urlsplit(service.alertmanager.url) if service.alertmanager is not None else None
            if url is not None and url.scheme == "http" and url.hostname not in self.private_hosts:
                raise ValueError(
                    f"service {service.name} has an http:// url; use https://, or list {url.hostname} in privateHosts"
                )
        return self

    @property
    def defaults(self) -> dict[str, Severity]:
        """Return the least severity that each service hears of without routes."""
        found: dict[str, Severity] = {}
        for route in self.default_routes:
            severity = Severity[route.severity]
            found[route.service] = min(severity, found.get(route.service, severity))
        return found

    @property
    def words(self) -> dict[str, Templates]:
        """Return the templates by trigger."""
        return {each.trigger: Templates(Template(each.title), Template(each.body)) for each in self.templates}


def read_configuration(path: Path) -> Configuration:
    """Read the file.

    Raises: ConfigurationInvalid with one sentence for the first fault.
    """
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationInvalid(f"--notifications: {path} cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        told = " ".join(str(error).split())[:200]
        raise ConfigurationInvalid(f"--notifications: {path} is no YAML: {told}") from None
    if not isinstance(found, dict) or (found.get("apiVersion"), found.get("kind")) != (API_VERSION, KIND):
        raise ConfigurationInvalid(
            f"--notifications: {path} must have apiVersion {API_VERSION} and kind {KIND}"
        )
    try:
        return Configuration.model_validate(found)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(each) for each in first["loc"])
        raise ConfigurationInvalid(
            f"--notifications: {path}: {where + ': ' if where else ''}{first['msg'].removeprefix('Value error, ')}"
        ) from None
