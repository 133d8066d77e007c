"""The store of many machines: an etcd cluster that keeps the state, and an image of it in memory that is read.

``store`` is what callers see; ``feed`` keeps the image true by one watch; ``gateway`` is the wire to whichever member
answers; ``wire`` is what goes over it; ``turns`` keeps the order of writes to one key; ``address`` reads the URL.
Nothing outside this package imports it: ``opening`` finds it by the name in the URL.
"""
