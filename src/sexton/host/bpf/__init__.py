"""C sources of the walk over memory cgroups, compiled by ``scripts/build_bpf.sh`` into one program below ``built/``.

Start with ``walk.bpf.c``, the part that runs inside the kernel; ``memcg_walk.c`` loads it and writes its account, which
``host/memcg_walk.py`` reads. Why it is built so: ``docs/adr/0010-bpf-iterator-walk.md``.
"""
