/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * Walks the tree of memory cgroups inside the kernel, dead ones included, and notes what each still holds.
 *
 * A removed cgroup has no directory any more, but as long as a page pins it, it stays linked to its parent, and its name
 * stays with it. The program runs as an iterator over tasks and does all its work at the first of them: iterators are run
 * under the lock that keeps those links in place, need no function of a new kernel, and attach to nothing.
 *
 * Everything is read with the checked read that answers a bad address with an error. Page lists do change meanwhile: a
 * page counts only while it says itself that it belongs to the group at hand, and a list that leads elsewhere is left.
 * The walk ends at a deadline of its own, so it never keeps a core in the kernel for longer than it was allowed to.
 */
#include <linux/bpf.h>

#include "kernel.h"
#include "record.h"

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "GPL";

/* Compiled twice, with pins and without: looking up a structure's fields costs a millisecond each time, and without pins
 * half of them are not needed. */
#ifndef PINS
#error "say -DPINS=0 or -DPINS=1"
#endif

/* Set by the loader before the program is verified. */
const volatile __u32 nodes = 1;
const volatile __u32 want_generations = 0;
const volatile __u32 names_room = NAME_ROOM;
const volatile __u64 allowed_ns = 400000000;

#define TABLE(name, type_of_value)                                                                                     \
    struct {                                                                                                           \
        __uint(type, BPF_MAP_TYPE_ARRAY);                                                                              \
        __uint(map_flags, BPF_F_MMAPABLE);                                                                             \
        __uint(max_entries, 1);                                                                                        \
        __type(key, __u32);                                                                                            \
        __type(value, type_of_value);                                                                                  \
    } name SEC(".maps")

TABLE(groups, struct group);
TABLE(pins, struct pin);
TABLE(holders, struct holder);
TABLE(summaries, struct summary);

/* One entry of names_room bytes. */
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(map_flags, BPF_F_MMAPABLE);
    __uint(max_entries, 1);
    __uint(key_size, 4);
    __uint(value_size, NAME_ROOM);
} names SEC(".maps");

/* Which row of the holders an inode or a process has. */
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 1);
    __type(key, __u64);
    __type(value, __u32);
} known SEC(".maps");

enum stage { VISIT, NODES, LISTS, PATH, DESCEND, CLIMB };

/* Heads of a group's page lists of one node: the four that hold evictable pages, then those of the generations. Locked
 * pages are on no list: the fifth is a head without a tail. */
#define PLAIN_HEADS 4
/* No list of a zombie is so long that this stops it; one that changed under our feet may have become a circle. */
#define LONGEST_LIST 4000000
/* The clock is asked once in so many steps. */
#define STEPS_BETWEEN_CLOCKS 64
/* The bit a group's reference counter gets when the group is removed. A group that is just being made lacks it. */
#define PERCPU_REF_DEAD 2
/* As many steps as one loop may take. */
#define MOST_STEPS (1 << 23)
#define MOST_ZONES 6

struct walk {
    struct cgroup_subsys_state *root, *here;
    struct cgroup_subsys *controller;
    struct list_head *head, *at;
    struct inode *last_inode; /* its row is last_holder; pages of one file stand together */
    __u64 until;
    __u32 last_holder;
    __u32 stage;
    __u32 depth;
    __u32 row;           /* of the group at hand */
    __u32 dead;          /* whether it is */
    struct dentry *part; /* of the path of the last file, when it is being read */
    __u32 parts;
    __u32 node;
    __u32 list;
    __u32 length;
    struct cgroup_subsys_state *path[DEEPEST]; /* the groups above the one at hand */
    struct summary said;
};

/* In a map rather than on the stack: there the verifier follows no single value, and so sees that the loop has few states. */
static struct walk walk;

static __always_inline void *offset(void *from, __u64 bytes)
{
    return (char *)from + bytes;
}

static __always_inline void *pointer_at(void *address)
{
    void *value = 0;

    bpf_probe_read_kernel(&value, sizeof value, address);
    return value;
}

#define READ_AT(base, type, field)                                                                                     \
    ({                                                                                                                 \
        typeof(((type *)0)->field) value_ = 0;                                                                         \
        bpf_probe_read_kernel(&value_, sizeof value_, offset(base, bpf_core_field_offset(type, field)));               \
        value_;                                                                                                        \
    })

/* Copy one name into the arena. 0 when it cannot be read or there is no room. */
static __always_inline int keep_name(struct walk *w, const void *name)
{
    __u32 key = 0, at = w->said.names;
    char *arena = bpf_map_lookup_elem(&names, &key);

    if (!arena)
        return 0;
    /* From here on in a register: a bound is not known of a copy that the compiler left on the stack (seen on 6.1). */
    asm volatile("" : "+r"(at));
    if (at > names_room - NAME_ROOM) {
        w->said.full |= FULL_NAMES;
        return 0;
    }
    long got = bpf_probe_read_kernel_str(arena + at, NAME_ROOM, name);
    if (got < 0)
        return 0;
    w->said.names = at + got;
    return 1;
}

static __always_inline struct mem_cgroup_per_node *node_of(struct mem_cgroup *memory, __u32 node)
{
    return pointer_at(offset(memory, bpf_core_field_offset(struct mem_cgroup, nodeinfo) + 8 * (__u64)node));
}

/* Add what the group holds on one node. */
static __always_inline void add_node(struct group *group, struct mem_cgroup_per_node *node)
{
    __u64 sizes[MOST_ZONES * LRU_LISTS];
    __u32 bytes = bpf_core_field_size(struct mem_cgroup_per_node, lru_zone_size);
    __u32 zones = bytes / (8 * LRU_LISTS);

    if (bytes > sizeof sizes)
        bytes = sizeof sizes;
    if (!node || bpf_probe_read_kernel(sizes, bytes,
                                       offset(node, bpf_core_field_offset(struct mem_cgroup_per_node, lru_zone_size))))
        return;
    for (__u32 zone = 0; zone < MOST_ZONES && zone < zones; zone++)
        for (int list = 0; list < LRU_LISTS; list++)
            group->lru[list] += sizes[zone * LRU_LISTS + list];
}

/* Note the group at hand. 0 when the table is full. */
static __always_inline int note_group(struct walk *w, struct cgroup_subsys_state *css)
{
    __u32 row = w->said.groups;
    struct group *group = bpf_map_lookup_elem(&groups, &row);

    if (!group) {
        w->said.full |= FULL_GROUPS;
        return 0;
    }
    struct mem_cgroup *memory = (void *)css; /* its first member */
    struct kernfs_node *node = BPF_CORE_READ(css, cgroup, kn);

    group->id = BPF_CORE_READ(node, id);
    group->dead = w->dead != 0;
    group->depth = w->depth;
    group->refs = BPF_CORE_READ(css, refcnt.data, count.counter);
    group->usage = READ_AT(memory, struct mem_cgroup, memory.usage.counter);
    for (int list = 0; list < LRU_LISTS; list++)
        group->lru[list] = 0;
    add_node(group, node_of(memory, 0));
    group->name = w->said.names;
    if (!keep_name(w, BPF_CORE_READ(node, name)))
        return 0;
    w->said.groups = row + 1;
    return 1;
}

#if PINS

/* Keep one part of the last file's path, the last part first. Its number of parts is set at the top alone. */
static __always_inline void read_part(struct walk *w)
{
    __u32 row = w->last_holder;
    struct holder *file = bpf_map_lookup_elem(&holders, &row);
    struct dentry *part = w->part;
    struct dentry *parent = BPF_CORE_READ(part, d_parent);

    w->stage = LISTS;
    if (!file || !parent)
        return;
    /* The topmost is its own parent. Its name counts only when it is all there is: an anonymous file has no other. */
    if (parent == part && w->parts) {
        file->parts = w->parts;
        return;
    }
    if (!keep_name(w, BPF_CORE_READ(part, d_name.name)))
        return;
    w->parts++;
    if (parent == part) {
        file->parts = 1;
    } else if (w->parts < PATH_PARTS) {
        w->part = parent;
        w->stage = PATH;
    }
}

static __always_inline struct holder *new_holder(struct walk *w, __u64 key, __u32 *row)
{
    *row = w->said.holders;
    struct holder *holder = bpf_map_lookup_elem(&holders, row);

    if (!holder || (key && bpf_map_update_elem(&known, &key, row, BPF_ANY))) {
        w->said.full |= FULL_HOLDERS;
        return 0;
    }
    w->said.holders = *row + 1;
    holder->name = w->said.names;
    holder->parts = 0;
    return holder;
}

/* Which file a page belongs to: its row, ~0 when there is no room. */
static __always_inline __u32 file_holder(struct walk *w, struct inode *inode)
{
    __u64 key = (__u64)inode;
    __u32 row;

    if (inode == w->last_inode)
        return w->last_holder;
    __u32 *found = bpf_map_lookup_elem(&known, &key);
    if (found) {
        row = *found;
    } else {
        struct holder *file = new_holder(w, key, &row);
        if (!file)
            return ~0;
        file->kind = HOLDER_FILE;
        file->number = BPF_CORE_READ(inode, i_ino);
        file->generation = BPF_CORE_READ(inode, i_generation);
        file->links = BPF_CORE_READ(inode, i_nlink);
        file->dev = BPF_CORE_READ(inode, i_sb, s_dev);
        file->magic = BPF_CORE_READ(inode, i_sb, s_magic);
        void *alias = pointer_at(offset(inode, bpf_core_field_offset(struct inode, i_dentry)));
        if (alias) {
            w->part = offset(alias, -(__u64)bpf_core_field_offset(struct dentry, d_u.d_alias));
            w->parts = 0;
            w->stage = PATH;
        }
    }
    w->last_inode = inode;
    w->last_holder = row;
    return row;
}

/* Which process a page of anonymous memory belongs to. Any one of those that share it. */
static __always_inline __u32 process_holder(struct walk *w, void *anonymous)
{
    __u64 key = 0;
    __u32 row;
    struct task_struct *owner = 0;
    struct rb_node *top = BPF_CORE_READ((struct anon_vma *)anonymous, rb_root.rb_root.rb_node);

    if (top) {
        struct anon_vma_chain *link = offset(top, -(__u64)bpf_core_field_offset(struct anon_vma_chain, rb));
        owner = BPF_CORE_READ(link, vma, vm_mm, owner);
        key = (__u64)owner;
    }
    __u32 *found = bpf_map_lookup_elem(&known, &key);
    if (found)
        return *found;
    struct holder *process = new_holder(w, key, &row);
    if (!process)
        return ~0;
    if (!key)
        bpf_map_update_elem(&known, &key, &row, BPF_ANY);
    process->magic = 0;
    process->dev = process->generation = process->links = 0;
    process->kind = owner ? HOLDER_PROCESS : HOLDER_UNKNOWN;
    process->number = 0;
    if (owner) {
        process->number = BPF_CORE_READ(owner, tgid);
        process->parts = keep_name(w, offset(owner, bpf_core_field_offset(struct task_struct, comm))) ? 1 : 0;
    }
    return row;
}

/* Note the page at hand. 0 when it is none of this group's, or the table is full. */
static __always_inline int note_page(struct walk *w)
{
    struct folio *folio = offset(w->at, -(__u64)bpf_core_field_offset(struct folio, lru));
    unsigned long flags = (unsigned long)pointer_at(folio); /* the first word of every page there ever was */
    __u64 mapping = (__u64)BPF_CORE_READ(folio, mapping);
    __u32 row = w->said.pins;

    /* Pages on these lists carry their group's plain address. */
    if (BPF_CORE_READ(folio, memcg_data) != (__u64)w->here) {
        w->said.strayed++;
        return 0;
    }
    struct pin *pin = bpf_map_lookup_elem(&pins, &row);
    if (!pin) {
        w->said.full |= FULL_PINS;
        return 0;
    }
    __u32 holder;
    /* The address's lowest bits tell anonymous memory (1, with a chain to its processes) from a file's (0). */
    if (mapping && !(mapping & 3))
        holder = file_holder(w, BPF_CORE_READ((struct address_space *)mapping, host));
    else
        holder = process_holder(w, (mapping & 3) == 1 ? (void *)(mapping & ~3ULL) : 0);
    if (holder == ~0U)
        return 0;
    pin->group = w->row;
    pin->holder = holder;
    pin->index = BPF_CORE_READ(folio, index);
    pin->pages = 1;
    int mapped = BPF_CORE_READ(folio, _mapcount.counter);
    if (flags & (1UL << bpf_core_enum_value(enum pageflags, PG_head))) {
        if (bpf_core_field_exists(folio->_nr_pages))
            pin->pages = BPF_CORE_READ(folio, _nr_pages);
        else if (bpf_core_field_exists(((struct folio___before615 *)folio)->_folio_nr_pages))
            pin->pages = BPF_CORE_READ((struct folio___before615 *)folio, _folio_nr_pages);
        if (bpf_core_field_exists(folio->_large_mapcount))
            mapped = BPF_CORE_READ(folio, _large_mapcount.counter);
    }
    /* The count of mappings starts at -1. */
    pin->flags = mapped >= 0 ? PIN_MAPPED : 0;
    if (flags & (1UL << bpf_core_enum_value(enum pageflags, PG_dirty)))
        pin->flags |= PIN_DIRTY;
    if (flags & (1UL << bpf_core_enum_value(enum pageflags, PG_swapbacked)))
        pin->flags |= PIN_SWAPBACKED;
    w->said.pins = row + 1;
    return 1;
}

static __always_inline __u32 heads_of_generations(void)
{
    if (!want_generations)
        return 0;
    if (bpf_core_field_exists(struct lruvec___gen, lrugen.folios))
        return bpf_core_field_size(struct lru_gen_folio, folios) / 16;
    if (bpf_core_field_exists(struct lruvec___oldgen, lrugen.lists))
        return bpf_core_field_size(struct lru_gen_struct, lists) / 16;
    return 0;
}

/* Stand before the first page of the list that is next. 0 when there is no list left. */
static __always_inline int next_list(struct walk *w)
{
    if (w->list >= PLAIN_HEADS + heads_of_generations()) {
        w->list = 0;
        w->node++;
    }
    if (w->node >= nodes)
        return 0;
    struct mem_cgroup_per_node *node = node_of((struct mem_cgroup *)w->here, w->node);
    if (!node) {
        w->list = PLAIN_HEADS + heads_of_generations();
        w->head = w->at = 0;
        return 1;
    }
    void *lruvec = offset(node, bpf_core_field_offset(struct mem_cgroup_per_node, lruvec));
    if (w->list < PLAIN_HEADS)
        w->head = offset(lruvec, bpf_core_field_offset(struct lruvec, lists) + 16 * (__u64)w->list);
    else if (bpf_core_field_exists(struct lruvec___gen, lrugen.folios))
        w->head = offset(lruvec, bpf_core_field_offset(struct lruvec___gen, lrugen.folios) +
                                     16 * (__u64)(w->list - PLAIN_HEADS));
    else if (bpf_core_field_exists(struct lruvec___oldgen, lrugen.lists))
        w->head = offset(lruvec, bpf_core_field_offset(struct lruvec___oldgen, lrugen.lists) +
                                     16 * (__u64)(w->list - PLAIN_HEADS));
    w->at = pointer_at(w->head);
    w->list++;
    w->length = 0;
    return 1;
}

#endif

static long step(__u64 number, void *context __attribute__((unused)))
{
    struct walk *w = &walk;
    struct cgroup_subsys_state *here = w->here;

    if (number % STEPS_BETWEEN_CLOCKS == 0 && bpf_ktime_get_ns() > w->until) {
        w->said.late = 1;
        return 1;
    }
#if PINS
    if (w->stage == LISTS) {
        if (w->at && w->at != w->head && w->length < LONGEST_LIST) {
            if (note_page(w)) {
                w->at = pointer_at(w->at);
                w->length++;
                return 0;
            }
            if (w->said.full)
                return 1;
        }
        if (!next_list(w))
            w->stage = DESCEND;
        return 0;
    }
    if (w->stage == PATH) {
        read_part(w);
        return w->said.full != 0;
    }
#endif
    if (w->stage == VISIT) {
        w->dead = BPF_CORE_READ(here, refcnt.percpu_count_ptr) & PERCPU_REF_DEAD;
        w->row = w->said.groups;
        if (!note_group(w, here))
            return 1;
        w->node = 1;
        w->stage = NODES;
    }
    if (w->stage == NODES) {
        if (w->node < nodes) {
            struct group *group = bpf_map_lookup_elem(&groups, &w->row);
            if (group)
                add_node(group, node_of((struct mem_cgroup *)here, w->node));
            w->node++;
            return 0;
        }
        w->node = w->list = 0;
        w->head = w->at = 0;
        w->stage = DESCEND;
#if PINS
        if (w->dead) {
            w->stage = LISTS;
            return 0;
        }
#endif
    }
    if (w->stage == DESCEND) {
        struct list_head *children = offset(here, bpf_core_field_offset(struct cgroup_subsys_state, children));
        struct list_head *first = pointer_at(children);
        if (first && first != children) {
            __u32 depth = w->depth;
            if (depth >= DEEPEST - 1)
                return 1;
            w->path[depth] = here;
            w->here = offset(first, -(__u64)bpf_core_field_offset(struct cgroup_subsys_state, sibling));
            w->depth++;
            w->stage = VISIT;
        } else {
            w->stage = CLIMB;
        }
    }
    if (w->stage == CLIMB) {
        if (here == w->root) {
            w->said.finished = 1;
            return 1;
        }
        __u32 above = w->depth - 1;
        if (above >= DEEPEST)
            return 1;
        struct cgroup_subsys_state *parent = w->path[above];
        struct list_head *end = offset(parent, bpf_core_field_offset(struct cgroup_subsys_state, children));
        struct list_head *next = pointer_at(offset(here, bpf_core_field_offset(struct cgroup_subsys_state, sibling)));
        if (next != end) {
            w->here = offset(next, -(__u64)bpf_core_field_offset(struct cgroup_subsys_state, sibling));
            w->stage = VISIT;
        } else {
            w->here = parent;
            w->depth--;
            return 0;
        }
    }
    /* Whatever was reached must be a group of the same controller; else the tree is not what it is taken for. */
    struct cgroup_subsys_state *there = w->here;
    return there != here && BPF_CORE_READ(there, ss) != w->controller;
}

SEC("iter/task")
int walk_memory_cgroups(struct bpf_iter__task *context)
{
    __u32 key = 0;
    struct walk *w = &walk;

    if (context->meta->seq_num > 0)
        return 0;
    struct summary *said = bpf_map_lookup_elem(&summaries, &key);
    if (!said)
        return 0;
    struct task_struct *task = (void *)bpf_get_current_task();
    struct css_set *set = BPF_CORE_READ(task, cgroups);
    struct cgroup_subsys_state *css =
        pointer_at(offset(set, bpf_core_field_offset(struct css_set, subsys) +
                                   8 * bpf_core_enum_value(enum cgroup_subsys_id, memory_cgrp_id)));
    /* The tree is walked from its root, wherever in it this process is and whatever part of it a namespace shows. */
    for (int level = 0; level < 256; level++) {
        struct cgroup_subsys_state *parent = BPF_CORE_READ(css, parent);
        if (!parent)
            break;
        css = parent;
    }
    w->root = w->here = css;
    w->controller = BPF_CORE_READ(css, ss);
    w->until = bpf_ktime_get_ns() + allowed_ns;
    bpf_loop(MOST_STEPS, step, 0, 0);
    *said = w->said;
    return 0;
}
