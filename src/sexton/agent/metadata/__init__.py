"""The endpoints that a task finds at 169.254.170.2: who it is, its keys, what the agent does for it.

``reach`` opens the sockets and leads tasks to them, ``server`` takes requests in and limits them, ``routes`` finds who
answers. Each of the other modules answers some paths and knows nothing of its siblings. ``identity`` gives containers
the names by which they are known here, ``variables`` tells them.
"""
