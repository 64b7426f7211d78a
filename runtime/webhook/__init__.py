"""What the API server asks us: whether to admit an object, and how it looks in another version.

`server` takes HTTP and limits what it takes; `admission` and `conversion` read one kind of review each and are free
of I/O; `certs` keeps the serving certificate current.
"""

from runtime.webhook.admission import AdmissionRequest, Allowed, Denied, ObjectMalformed, Reviewer, Verdict
from runtime.webhook.certs import CertificateWatcher
from runtime.webhook.conversion import ConversionFailed, Converter
from runtime.webhook.server import WebhookServer

__all__ = [
    "AdmissionRequest",
    "Allowed",
    "CertificateWatcher",
    "ConversionFailed",
    "Converter",
    "Denied",
    "ObjectMalformed",
    "Reviewer",
    "Verdict",
    "WebhookServer",
]
