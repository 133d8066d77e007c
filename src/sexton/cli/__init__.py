"""What people type: one module per noun; rendering only, the work is behind the daemons' HTTP API."""
