"""The same little operator twice, once on kopf and once on this runtime: a Bundle has three ConfigMaps.

Each is written as its framework's users write it. Both note the number of children in the Bundle's status.
"""
