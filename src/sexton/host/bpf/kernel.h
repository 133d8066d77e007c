/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * The few kernel structures the walk looks into, reduced to the fields it reads.
 *
 * preserve_access_index makes the loader look each field up in the running kernel's own type information, so order, size
 * and everything left out are of no account, and one object fits every kernel. A name after three underscores is the
 * same structure as another kernel version has it.
 */
#pragma once

#include <linux/types.h>

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct list_head {
    struct list_head *next;
};
struct hlist_node {
    struct hlist_node *next;
};
struct hlist_head {
    struct hlist_node *first;
};
struct rb_node {
    struct rb_node *rb_left;
};
struct rb_root {
    struct rb_node *rb_node;
};
struct rb_root_cached {
    struct rb_root rb_root;
};
typedef struct {
    int counter;
} atomic_t;
typedef struct {
    long counter;
} atomic_long_t;

/* cgroups */

enum cgroup_subsys_id { memory_cgrp_id = 4 };

struct kernfs_node {
    const char *name;
    __u64 id;
};
struct cgroup {
    struct kernfs_node *kn;
};
struct percpu_ref_data {
    atomic_long_t count;
};
struct percpu_ref {
    unsigned long percpu_count_ptr;
    struct percpu_ref_data *data;
};
struct cgroup_subsys;
struct cgroup_subsys_state {
    struct cgroup *cgroup;
    struct cgroup_subsys *ss;
    struct percpu_ref refcnt;
    struct list_head sibling;
    struct list_head children;
    struct cgroup_subsys_state *parent;
};
struct css_set {
    struct cgroup_subsys_state *subsys[1];
};
struct task_struct {
    struct css_set *cgroups;
    int tgid;
    char comm[16];
};

/* memory of a cgroup */

struct page_counter {
    atomic_long_t usage;
};
struct lruvec {
    struct list_head lists[1];
};
struct lru_gen_folio { /* multi-generational lists, 6.3 and later */
    struct list_head folios[1];
};
struct lruvec___gen {
    struct lru_gen_folio lrugen;
};
struct lru_gen_struct { /* the same, before 6.3 */
    struct list_head lists[1];
};
struct lruvec___oldgen {
    struct lru_gen_struct lrugen;
};
struct mem_cgroup_per_node {
    struct lruvec lruvec;
    unsigned long lru_zone_size[1];
};
struct mem_cgroup {
    struct cgroup_subsys_state css;
    struct page_counter memory;
    struct mem_cgroup_per_node *nodeinfo[0];
};

/* pages and what they belong to */

enum pageflags { PG_dirty = 4, PG_head = 6, PG_swapbacked = 17 };

struct address_space;
struct folio {
    struct list_head lru;
    struct address_space *mapping;
    unsigned long index;
    atomic_t _mapcount;
    unsigned long memcg_data;
    atomic_t _large_mapcount;
    unsigned int _nr_pages;
};
struct folio___before615 {
    unsigned int _folio_nr_pages;
};
struct super_block {
    unsigned int s_dev;
    unsigned long s_magic;
};
struct inode {
    struct super_block *i_sb;
    unsigned long i_ino;
    unsigned int i_nlink;
    __u32 i_generation;
    struct hlist_head i_dentry;
};
struct address_space {
    struct inode *host;
};
struct qstr {
    const unsigned char *name;
};
struct dentry {
    struct dentry *d_parent;
    struct qstr d_name;
    union {
        struct hlist_node d_alias;
    } d_u;
};
struct mm_struct {
    struct task_struct *owner;
};
struct vm_area_struct {
    struct mm_struct *vm_mm;
};
struct anon_vma {
    struct rb_root_cached rb_root;
};
struct anon_vma_chain {
    struct vm_area_struct *vma;
    struct rb_node rb;
};

/* what an iterator program is given */

struct seq_file;
struct bpf_iter_meta {
    struct seq_file *seq;
    __u64 session_id;
    __u64 seq_num;
};
struct bpf_iter__task {
    struct bpf_iter_meta *meta;
    struct task_struct *task;
};

#pragma clang attribute pop
