/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes values as MessagePack into one growing buffer: the few types that a walk's account consists of.
 */
#pragma once

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct packing {
    unsigned char *bytes;
    size_t used, room;
};

static void pack_bytes(struct packing *p, const void *data, size_t count)
{
    if (p->used + count > p->room) {
        p->room = (p->used + count) * 2;
        p->bytes = realloc(p->bytes, p->room);
        if (!p->bytes) {
            fputs("cannot keep the account: out of memory\n", stderr);
            exit(5);
        }
    }
    memcpy(p->bytes + p->used, data, count);
    p->used += count;
}

/* A type's byte and a number after it, the highest byte first. */
static void pack_head(struct packing *p, unsigned char type, uint64_t value, int bytes)
{
    unsigned char out[9] = {type};

    for (int i = 0; i < bytes; i++)
        out[1 + i] = value >> (8 * (bytes - 1 - i));
    pack_bytes(p, out, 1 + bytes);
}

static void pack_unsigned(struct packing *p, uint64_t value)
{
    if (value < 128)
        pack_head(p, value, 0, 0);
    else if (value <= UINT32_MAX)
        pack_head(p, 0xce, value, 4);
    else
        pack_head(p, 0xcf, value, 8);
}

static void pack_array(struct packing *p, uint32_t count)
{
    if (count < 16)
        pack_head(p, 0x90 | count, 0, 0);
    else
        pack_head(p, 0xdd, count, 4);
}

static void pack_flag(struct packing *p, int value)
{
    pack_head(p, value ? 0xc3 : 0xc2, 0, 0);
}

/* Names are bytes: what a file is called need not be text. */
static void pack_name(struct packing *p, const char *text, size_t length)
{
    if (length < 256)
        pack_head(p, 0xc4, length, 1);
    else
        pack_head(p, 0xc5, length, 2);
    pack_bytes(p, text, length);
}
