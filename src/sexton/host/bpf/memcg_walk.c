/* SPDX-License-Identifier: Apache-2.0
 *
 * Loads the walk, runs it once, and writes its account of this host's memory cgroups to standard output.
 *
 *     memcg-walk groups|pins EXPECTED MILLISECONDS
 *
 * groups: every memory cgroup with its former path and what it holds. pins: also each page that keeps a dead one, and the
 * file or process the page belongs to. EXPECTED is about how many cgroups there are, MILLISECONDS the longest the walk
 * may stay in the kernel. Nothing is attached or left behind: when this process ends, so does everything it loaded.
 *
 * Exit codes: 0 an account was written, 2 wrong arguments, 3 not permitted, 4 this kernel cannot, 5 anything else. The
 * reason is on standard error, one line. The account is MessagePack in frames, each behind its length, so that a reader
 * need not hold all of it; host/memcg_walk.py says its shape.
 */
#define _GNU_SOURCE
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "packing.h"
#include "record.h"

enum { WRITTEN = 0, USAGE = 2, FORBIDDEN = 3, INCAPABLE = 4, FAILED = 5 };

/* Version of the account's shape; the reader insists on it. */
#define SHAPE 2
/* Groups, holders or pins in one frame. */
#define FRAME 256
/* Tables are an eighth larger than what is expected, since the tree moves on. */
#define SLACK(count) ((count) + (count) / 8 + 1024)
/* Pages known to pin zombies need this much memory at most: 24 bytes each. */
#define MOST_PINS 4000000
/* A walk whose tables were too small is repeated with larger ones, so often at most. */
#define ATTEMPTS 4
#define LONGEST_PATH 16384
/* Bytes of a group's name, as a rule: engines name most by 64 digits. */
#define USUAL_NAME 72
/* Bytes of a file's whole path, as a rule. */
#define USUAL_PATH 96

/* The two objects the compiler for BPF made, as they are. */
asm(".section .rodata\n"
    ".balign 8\n"
    "walk_groups: .incbin \"groups.bpf.o\"\n"
    "walk_groups_end: .balign 8\n"
    "walk_pins: .incbin \"pins.bpf.o\"\n"
    "walk_pins_end: .byte 0\n"
    ".previous\n");
extern const char walk_groups[], walk_groups_end[], walk_pins[], walk_pins_end[];

static char trouble[512];

/* The first complaint is kept: it says what this kernel lacks. What follows it is consequences. */
static int listen(enum libbpf_print_level level, const char *format, va_list arguments)
{
    char line[4096];

    if (level != LIBBPF_WARN)
        return 0;
    vsnprintf(line, sizeof line, format, arguments);
    if (!trouble[0])
        snprintf(trouble, sizeof trouble, "%s", line);
    return 0;
}

static void give_up(int code, const char *what, int error)
{
    trouble[strcspn(trouble, "\n")] = 0;
    fprintf(stderr, "%s: %s%s%s\n", what, strerror(error), trouble[0] ? "; " : "", trouble);
    exit(code);
}

static int code_of(int error)
{
    return error == EPERM || error == EACCES ? FORBIDDEN : INCAPABLE;
}

struct tables {
    struct group *groups;
    struct pin *pins;
    struct holder *holders;
    const char *names;
    struct summary summary;
};

struct sizes {
    __u32 groups, pins, holders, names;
};

static struct bpf_map *map_named(struct bpf_object *object, const char *name)
{
    struct bpf_map *map = bpf_object__find_map_by_name(object, name);

    if (!map)
        give_up(FAILED, "the walk is incomplete", ENOENT);
    return map;
}

static void *shared(struct bpf_object *object, const char *name)
{
    struct bpf_map *map = map_named(object, name);
    size_t bytes = (size_t)bpf_map__value_size(map) * bpf_map__max_entries(map);
    void *at = mmap(0, bytes, PROT_READ, MAP_SHARED, bpf_map__fd(map), 0);

    if (at == MAP_FAILED)
        give_up(FAILED, "cannot map a table of the walk", errno);
    return at;
}

/* As many memory nodes as may exist; the kernel writes them as ranges, the highest last. */
static __u32 possible_nodes(void)
{
    FILE *file = fopen("/sys/devices/system/node/possible", "r");
    unsigned highest = 0, number;
    int next;

    while (file && fscanf(file, "%u", &number) == 1) {
        highest = number;
        next = fgetc(file);
        if (next != '-' && next != ',')
            break;
    }
    if (file)
        fclose(file);
    return highest < MOST_NODES ? highest + 1 : MOST_NODES;
}

static __u32 generations_in_use(void)
{
    FILE *file = fopen("/sys/kernel/mm/lru_gen/enabled", "r");
    unsigned bits = 0;

    if (file && fscanf(file, "%x", &bits) != 1)
        bits = 0;
    if (file)
        fclose(file);
    return bits & 1;
}

/* A page that was touched a moment ago waits in its processor's own batch, on no list of its group, and would be missed.
 * Asking for pages to be cooled puts the batch of the processor that asks on the lists, so each one asks for one page. */
static void empty_batches(void)
{
    long size = sysconf(_SC_PAGESIZE);
    cpu_set_t allowed, one;
    char *page;

    if (sched_getaffinity(0, sizeof allowed, &allowed))
        return;
    page = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        return;
    *page = 1;
    for (int processor = 0; processor < CPU_SETSIZE; processor++) {
        if (!CPU_ISSET(processor, &allowed))
            continue;
        CPU_ZERO(&one);
        CPU_SET(processor, &one);
        if (!sched_setaffinity(0, sizeof one, &one))
            madvise(page, size, MADV_COLD);
    }
    sched_setaffinity(0, sizeof allowed, &allowed);
    munmap(page, size);
}

/* The program's constants, in the order in which it declares them. */
struct constants {
    __u32 nodes, want_generations, names_room, pad;
    __u64 allowed_ns;
};

static void run_once(struct tables *out, int want_pins, struct sizes sizes, struct constants constants)
{
    LIBBPF_OPTS(bpf_object_open_opts, options, .object_name = "sexton_walk");
    struct bpf_object *object = want_pins ? bpf_object__open_mem(walk_pins, walk_pins_end - walk_pins, &options)
                                          : bpf_object__open_mem(walk_groups, walk_groups_end - walk_groups, &options);
    struct bpf_map *fixed;
    char word[8];

    if (!object)
        give_up(FAILED, "cannot read the compiled walk", errno);
    bpf_map__set_max_entries(map_named(object, "groups"), sizes.groups);
    bpf_map__set_max_entries(map_named(object, "pins"), sizes.pins);
    bpf_map__set_max_entries(map_named(object, "holders"), sizes.holders);
    bpf_map__set_max_entries(map_named(object, "known"), sizes.holders);
    bpf_map__set_value_size(map_named(object, "names"), sizes.names);
    constants.names_room = sizes.names;
    fixed = map_named(object, ".rodata");
    if (bpf_map__set_initial_value(fixed, &constants, bpf_map__value_size(fixed)))
        give_up(FAILED, "the walk and its loader were not built together", errno);
    int failed = bpf_object__load(object);
    if (failed)
        give_up(code_of(-failed), "cannot load the walk into the kernel", -failed);
    struct bpf_program *program = bpf_object__find_program_by_name(object, "walk_memory_cgroups");
    struct bpf_link *link = bpf_program__attach_iter(program, 0);
    if (!link)
        give_up(code_of(errno), "cannot make the walk an iterator", errno);
    int iterator = bpf_iter_create(bpf_link__fd(link));
    if (iterator < 0)
        give_up(code_of(-iterator), "cannot start the walk", -iterator);
    /* Reading is what runs it. It writes nothing: the end comes at once. */
    while (read(iterator, word, sizeof word) < 0)
        if (errno != EAGAIN && errno != EINTR)
            give_up(FAILED, "the walk ended early", errno);
    close(iterator);
    out->groups = shared(object, "groups");
    out->pins = shared(object, "pins");
    out->holders = shared(object, "holders");
    out->names = shared(object, "names");
    out->summary = *(struct summary *)shared(object, "summaries");
    /* The object stays open until this process ends, and its tables mapped. */
}

static struct tables run(int want_pins, __u32 expected, __u64 milliseconds)
{
    struct tables tables = {};
    struct constants constants = {
        .nodes = possible_nodes(),
        .want_generations = generations_in_use(),
        .allowed_ns = milliseconds * 1000000,
    };
    struct sizes sizes = {
        .groups = SLACK(expected),
        .pins = want_pins ? SLACK(expected) + 65536 : 1,
        .holders = want_pins ? SLACK(expected) : 1,
        .names = SLACK(expected) * (USUAL_NAME + (want_pins ? USUAL_PATH : 0)),
    };

    for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
        run_once(&tables, want_pins, sizes, constants);
        if (tables.summary.finished || !tables.summary.full)
            break;
        /* All of them: what was expected was wrong, and one that was not filled yet would be the next. */
        sizes.groups *= 4;
        sizes.names *= 4;
        if (want_pins) {
            sizes.holders *= 4;
            sizes.pins = sizes.pins > MOST_PINS / 8 ? MOST_PINS : sizes.pins * 8;
        }
    }
    return tables;
}

static void write_all(const void *data, size_t count)
{
    const unsigned char *at = data;

    while (count) {
        ssize_t more = write(STDOUT_FILENO, at, count);
        if (more < 0 && errno != EINTR)
            give_up(FAILED, "cannot write the account", errno);
        if (more > 0) {
            at += more;
            count -= more;
        }
    }
}

/* What a frame holds. */
enum { HEAD, GROUPS, HOLDERS, PINNING };

static void begin_frame(struct packing *out, int kind, __u32 rows)
{
    out->used = 0;
    pack_array(out, 2);
    pack_unsigned(out, kind);
    pack_array(out, rows);
}

static void end_frame(struct packing *out)
{
    unsigned char length[4];

    for (int i = 0; i < 4; i++)
        length[i] = out->used >> (8 * (3 - i));
    write_all(length, sizeof length);
    write_all(out->bytes, out->used);
}

/* Called before each row of a table: the frame that is full goes out, and the next begins. */
static void frame_row(struct packing *out, int kind, __u32 row, __u32 rows)
{
    if (row % FRAME)
        return;
    if (row)
        end_frame(out);
    begin_frame(out, kind, rows - row < FRAME ? rows - row : FRAME);
}

static void write_head(struct packing *out, const struct summary *said)
{
    begin_frame(out, HEAD, 8);
    pack_unsigned(out, SHAPE);
    pack_flag(out, said->finished);
    pack_flag(out, said->late);
    pack_unsigned(out, said->full);
    pack_unsigned(out, said->strayed);
    pack_unsigned(out, said->groups);
    pack_unsigned(out, said->holders);
    pack_unsigned(out, said->pins);
    end_frame(out);
}

static void write_groups(struct packing *out, const struct tables *t)
{
    static char path[LONGEST_PATH];
    static size_t ends[DEEPEST + 1]; /* where the path of each depth ends */
    static __u32 living[DEEPEST + 1]; /* the row of the nearest live group of each depth */

    for (__u32 row = 0; row < t->summary.groups; row++) {
        const struct group *group = &t->groups[row];
        __u32 depth = group->depth < DEEPEST ? group->depth : DEEPEST;
        size_t end = depth ? ends[depth - 1] : 0;
        __u32 above = depth ? living[depth - 1] : 0;

        if (depth && end + 256 < sizeof path) {
            size_t length = strlen(t->names + group->name);
            path[end++] = '/';
            memcpy(path + end, t->names + group->name, length);
            end += length;
        }
        ends[depth] = end;
        living[depth] = group->dead ? above : row;
        frame_row(out, GROUPS, row, t->summary.groups);
        pack_array(out, 11);
        pack_unsigned(out, group->id);
        pack_name(out, depth ? path : "/", depth ? end : 1);
        pack_flag(out, group->dead);
        pack_unsigned(out, above);
        pack_unsigned(out, group->dead ? group->refs : 0);
        pack_unsigned(out, group->usage);
        for (int list = 0; list < LRU_LISTS; list++)
            pack_unsigned(out, group->lru[list]);
    }
    if (t->summary.groups)
        end_frame(out);
}

static void pack_holder_name(struct packing *out, const struct tables *t, const struct holder *holder)
{
    static char path[LONGEST_PATH];
    const char *parts[PATH_PARTS], *at = t->names + holder->name;
    size_t end = 0;

    for (__u32 part = 0; part < holder->parts; part++) {
        parts[part] = at;
        at += strlen(at) + 1;
    }
    for (__u32 part = holder->parts; part-- > 0;) {
        size_t length = strlen(parts[part]);
        if (holder->kind == HOLDER_FILE)
            path[end++] = '/';
        memcpy(path + end, parts[part], length);
        end += length;
    }
    pack_name(out, path, end);
}

static void write_holders(struct packing *out, const struct tables *t)
{
    for (__u32 row = 0; row < t->summary.holders; row++) {
        const struct holder *holder = &t->holders[row];
        frame_row(out, HOLDERS, row, t->summary.holders);
        pack_array(out, 7);
        pack_unsigned(out, holder->kind);
        pack_unsigned(out, holder->number);
        pack_unsigned(out, holder->dev);
        pack_unsigned(out, holder->generation);
        pack_unsigned(out, holder->links);
        pack_unsigned(out, holder->magic);
        pack_holder_name(out, t, holder);
    }
    if (t->summary.holders)
        end_frame(out);
}

static void write_pins(struct packing *out, const struct tables *t)
{
    for (__u32 row = 0; row < t->summary.pins; row++) {
        const struct pin *pin = &t->pins[row];
        frame_row(out, PINNING, row, t->summary.pins);
        pack_array(out, 5);
        pack_unsigned(out, pin->group);
        pack_unsigned(out, pin->holder);
        pack_unsigned(out, pin->index);
        pack_unsigned(out, pin->pages);
        pack_unsigned(out, pin->flags);
    }
    if (t->summary.pins)
        end_frame(out);
}

int main(int count, char **words)
{
    struct packing out = {};

    if (count != 4 || (strcmp(words[1], "groups") && strcmp(words[1], "pins"))) {
        fputs("say groups or pins, how many cgroups to expect, and how many milliseconds the walk may take\n", stderr);
        return USAGE;
    }
    /* Whoever asked and is gone needs no answer. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    libbpf_set_print(listen);
    unsigned long expected = strtoul(words[2], 0, 10);
    empty_batches();
    struct tables tables =
        run(!strcmp(words[1], "pins"), expected < 10000000 ? expected : 10000000, strtoul(words[3], 0, 10));

    write_head(&out, &tables.summary);
    write_groups(&out, &tables);
    write_holders(&out, &tables);
    write_pins(&out, &tables);
    return WRITTEN;
}
