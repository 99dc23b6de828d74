#include "executor/mesh/mesh.h"
#include "executor/fabric/progress.h"

#include <stdlib.h>
#include <string.h>

/* The axes along which the members of each group differ. */
static const unsigned group_axes[MESH_GROUP_COUNT] = {
    [MESH_DENSE_SHARDS] = 1U << AXIS_FSDP | 1U << AXIS_CP,
    [MESH_EXPERT_SHARDS] = 1U << AXIS_E_FSDP,
    [MESH_DENSE_REPLICAS] = 1U << AXIS_D_REP,
    [MESH_EXPERT_REPLICAS] = 1U << AXIS_E_REP,
    [MESH_EXPERTS] = 1U << AXIS_EP,
    [MESH_CONTEXT] = 1U << AXIS_CP,
};

int mesh_open(struct meshes *mesh, struct fabric *fabric, const struct layout *layout, bool copies,
              struct diag_list *reterr)
{
    memset(mesh, 0, sizeof *mesh);
    mesh->fabric = fabric;
    mesh->layout = layout;
    int *ranks = calloc((size_t)fabric->world, sizeof *ranks);
    int ret = ranks ? 0 : diag_error(reterr, (struct pos){ 0 }, "no memory left for the mesh");
    for (int i = 0; ret == 0 && i < MESH_GROUP_COUNT; i++) {
        int count = layout_group(layout, group_axes[i], fabric->rank, ranks);
        bool by_copies = copies && i == MESH_EXPERTS && fabric->ops->group_open_copies;
        progress_wait(fabric->progress, "group_open");
        ret = (by_copies ? fabric->ops->group_open_copies
                         : fabric->ops->group_open)(fabric, ranks, count, &mesh->groups[i], reterr);
        progress_waited(fabric->progress);
    }
    free(ranks);
    return ret;
}

void mesh_close(struct meshes *mesh)
{
    for (int i = 0; i < MESH_GROUP_COUNT; i++)
        if (mesh->groups[i])
            mesh->fabric->ops->group_close(mesh->fabric, mesh->groups[i]);
    memset(mesh, 0, sizeof *mesh);
}

int mesh_data_rank(const struct meshes *mesh)
{
    const struct layout *l = mesh->layout;
    int rank = mesh->fabric->rank;
    return layout_coordinate(l, AXIS_FSDP, rank) + l->fsdp * layout_coordinate(l, AXIS_D_REP, rank);
}

int mesh_data_ranks(const struct meshes *mesh)
{
    return layout_dp(mesh->layout);
}

int mesh_first_expert(const struct meshes *mesh, int rank, int experts)
{
    return layout_coordinate(mesh->layout, AXIS_EP, rank) * (experts / mesh->layout->ep);
}
