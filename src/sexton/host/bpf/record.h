/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
 *
 * What the walk inside the kernel leaves in shared memory for the program that started it.
 *
 * Three tables, an arena of names, each closed by a 0, and one summary. Groups stand in tree order, each parent before
 * its children, with its depth; that is all it takes to put their paths together. Records are small, since there are
 * many and fresh memory is what costs most. Sizes are in pages.
 */
#pragma once

#include <linux/types.h>

#define NAME_ROOM 256 /* the longest file name there is, and its 0 */
#define PATH_PARTS 40 /* directories deep; a file that lies deeper is left without a name */
#define LRU_LISTS 5   /* inactive and active anonymous, inactive and active file, unevictable */
#define MOST_NODES 64 /* memory nodes looked at */
#define DEEPEST 256   /* groups within groups; the walk ends at one that lies deeper */

struct group {
    __u64 id;
    __u32 refs; /* of a dead one */
    __u32 usage;
    __u32 lru[LRU_LISTS];
    __u32 name; /* offset in the arena */
    __u16 depth;
    __u16 dead;
    __u32 pad;
};

/* What a page belongs to. */
enum holder_kind { HOLDER_UNKNOWN, HOLDER_FILE, HOLDER_PROCESS };

struct holder {
    __u64 number; /* inode or process id */
    __u64 magic;  /* of the file system; 0 for a process */
    __u32 kind;
    __u32 dev;
    __u32 generation;
    __u32 links;
    __u32 name;  /* offset in the arena: the file's parts from the last to the first, or the process's name */
    __u32 parts; /* 0 when it is not known */
};

#define PIN_DIRTY 1
#define PIN_SWAPBACKED 2 /* memory of no file on a disk */
#define PIN_MAPPED 4     /* part of some process's address space now */

struct pin {
    __u64 index; /* page of the file */
    __u32 group; /* row of the group */
    __u32 holder;
    __u32 pages;
    __u32 flags;
};

enum full { FULL_GROUPS = 1, FULL_PINS = 2, FULL_HOLDERS = 4, FULL_NAMES = 8 };

struct summary {
    __u32 groups;
    __u32 pins;
    __u32 holders;
    __u32 names;    /* bytes of the arena in use */
    __u32 finished; /* the whole tree was walked */
    __u32 full;     /* tables that were too small */
    __u32 strayed;  /* lists that changed while they were read, and were left */
    __u32 late;     /* stopped at the deadline */
};
