/* wire.h - how long a collective takes on a machine, told from its facts and from where the members
 * of the group are. Independent of the planner's step time, which it is held against. */
#ifndef RANKFIT_EXECUTOR_FABRIC_REHEARSAL_WIRE_H
#define RANKFIT_EXECUTOR_FABRIC_REHEARSAL_WIRE_H

#include "base/hardware/hardware.h"

#include <stdbool.h>
#include <stdint.h>

/* Which members of a group a rank reaches over links, those of its own domain, itself among them;
 * the others over the network. */
struct wire {
    const struct hardware *hardware;
    int members, near;
};
struct wire wire_of(const struct hardware *hardware, const int *ranks, int count, int rank);
bool wire_is_near(const struct hardware *hardware, int rank, int other);

/* Seconds of a ring that brings every member the `bytes` of each other one (or adds as much, for
 * one that `sums`): (members - 1) x bytes pass each member. A ring that leaves the domain does so
 * through the adapters of all its near members, each with a part of the bytes. */
double wire_ring_seconds(const struct wire *wire, uint64_t bytes, bool sums);

/* What one member sends and receives in an exchange, beside what stays with it. */
struct wire_rows {
    uint64_t near_sent, near_received, far_sent, far_received;
};
/* Links and network carry both directions at once, and each its own share at the same
 * time; copies: by the copy engines. */
double wire_exchange_seconds(const struct wire *wire, const struct wire_rows *bytes, bool copies);

#endif
