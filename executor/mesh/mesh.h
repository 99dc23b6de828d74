/* mesh.h - the groups of ranks in which one rank works: who shares which state, who exchanges rows,
 * who holds copies. Knows layouts and the fabric, not what travels. */
#ifndef RANKFIT_EXECUTOR_MESH_MESH_H
#define RANKFIT_EXECUTOR_MESH_MESH_H

#include "base/layout/layout.h"
#include "executor/fabric/fabric.h"

#include <stdbool.h>

enum mesh_group {
    MESH_DENSE_SHARDS,    /* one copy of dense state: fsdp x cp */
    MESH_EXPERT_SHARDS,   /* one copy of the local experts' state: e_fsdp */
    MESH_DENSE_REPLICAS,  /* the same slice of dense state: d_rep */
    MESH_EXPERT_REPLICAS, /* the same slice of expert state: e_rep */
    MESH_EXPERTS,         /* the experts of one layer are spread over these: ep */
    MESH_CONTEXT,         /* the tokens of one sequence are spread over these: cp */
    MESH_GROUP_COUNT
};

struct meshes {
    struct fabric *fabric;
    const struct layout *layout;
    struct group *groups[MESH_GROUP_COUNT];
};

/* Opens the groups of this rank; copies: expert rows move by copies, where the fabric has them. -1
 * with a diagnostic when a communicator cannot be had; mesh_close is due in both cases. */
int mesh_open(struct meshes *mesh, struct fabric *fabric, const struct layout *layout, bool copies,
              struct diag_list *reterr);
void mesh_close(struct meshes *mesh);

/* Which part of the global batch this rank works on: 0 .. dp - 1, and how many parts there are. */
int mesh_data_rank(const struct meshes *mesh);
int mesh_data_ranks(const struct meshes *mesh);

/* First expert of `rank` among `experts` spread over ep. */
int mesh_first_expert(const struct meshes *mesh, int rank, int experts);

#endif
