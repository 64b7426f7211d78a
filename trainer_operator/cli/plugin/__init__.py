"""`kubectl trainer`: Trainers as their users see and steer them (CL1, CL2).

`access` asks the API server, `treedata` and `treepage` hold the State Tree, each other module is one command or two.
"""

__all__: list[str] = []
