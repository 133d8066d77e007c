"""One host joins a cluster and runs its tasks."""
