"""Durable state behind one contract: SQLite on one machine, etcd when the control plane must outlive it."""
