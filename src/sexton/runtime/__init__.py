"""Container engines behind one contract; the engine of a host is chosen by name and loaded when it is used."""
