/* layout_ckpt.c: the structs of ckpt.h that a caller in another language must mirror. */
#include "ckpt.h"

#include "layout.h"

static void of_handles(void)
{
    STRUCT(ckpt_error);
    FIELD(ckpt_error, code);
    FIELD(ckpt_error, sys_errno);
    FIELD(ckpt_error, text);
    STRUCT(ckpt_allocator);
    FIELD(ckpt_allocator, alloc);
    FIELD(ckpt_allocator, free);
    FIELD(ckpt_allocator, ctx);
    STRUCT(ckpt_options);
    FIELD(ckpt_options, size);
    FIELD(ckpt_options, root);
    FIELD(ckpt_options, drive);
    FIELD(ckpt_options, engine);
    FIELD(ckpt_options, staging_bytes);
    FIELD(ckpt_options, block_bytes);
    FIELD(ckpt_options, queue_depth);
    FIELD(ckpt_options, timeout_ms);
    FIELD(ckpt_options, generation);
    FIELD(ckpt_options, run_id);
    FIELD(ckpt_options, group);
    FIELD(ckpt_options, allocator);
    FIELD(ckpt_options, log);
    FIELD(ckpt_options, log_ctx);
    STRUCT(ckpt_tensor);
    FIELD(ckpt_tensor, size);
    FIELD(ckpt_tensor, name);
    FIELD(ckpt_tensor, dtype);
    FIELD(ckpt_tensor, ndim);
    FIELD(ckpt_tensor, shape);
    FIELD(ckpt_tensor, strides_bytes);
    FIELD(ckpt_tensor, global_shape);
    FIELD(ckpt_tensor, offset);
    FIELD(ckpt_tensor, data);
}

static void of_saves_and_loads(void)
{
    STRUCT(ckpt_saved);
    FIELD(ckpt_saved, step);
    FIELD(ckpt_saved, sequence);
    FIELD(ckpt_saved, generation);
    FIELD(ckpt_saved, path);
    FIELD(ckpt_saved, shard_bytes);
    FIELD(ckpt_saved, staged_ns);
    FIELD(ckpt_saved, written_ns);
    FIELD(ckpt_saved, synced_ns);
    FIELD(ckpt_saved, committed_ns);
    STRUCT(ckpt_load_options);
    FIELD(ckpt_load_options, size);
    FIELD(ckpt_load_options, step);
    FIELD(ckpt_load_options, file);
    FIELD(ckpt_load_options, has_older_than);
    FIELD(ckpt_load_options, alone);
    FIELD(ckpt_load_options, older_generation);
    FIELD(ckpt_load_options, older_sequence);
    STRUCT(ckpt_info);
    FIELD(ckpt_info, step);
    FIELD(ckpt_info, sequence);
    FIELD(ckpt_info, generation);
    FIELD(ckpt_info, world_size);
    FIELD(ckpt_info, skipped);
    FIELD(ckpt_info, path);
    FIELD(ckpt_info, run_id);
    FIELD(ckpt_info, saved_unix_ms);
    FIELD(ckpt_info, digest);
    FIELD(ckpt_info, parent);
    STRUCT(ckpt_blob);
    FIELD(ckpt_blob, bytes);
    FIELD(ckpt_blob, len_bytes);
    STRUCT(ckpt_group);
    FIELD(ckpt_group, size);
    FIELD(ckpt_group, ctx);
    FIELD(ckpt_group, rank);
    FIELD(ckpt_group, world_size);
    FIELD(ckpt_group, exchange);
    FIELD(ckpt_group, fd);
    FIELD(ckpt_group, dispatch);
    FIELD(ckpt_group, cancel);
    FIELD(ckpt_group, close);
    STRUCT(ckpt_board);
    FIELD(ckpt_board, size);
    FIELD(ckpt_board, ctx);
    FIELD(ckpt_board, put);
    FIELD(ckpt_board, get);
    FIELD(ckpt_board, del);
    FIELD(ckpt_board, close);
}

int main(void)
{
    of_handles();
    of_saves_and_loads();
    return 0;
}
