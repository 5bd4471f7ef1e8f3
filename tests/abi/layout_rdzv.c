/* layout_rdzv.c: the structs of librdzv's headers that a caller in another language must mirror. */
#include "rdzv_client.h"

#include "layout.h"

static void common(void)
{
    STRUCT(rdzv_error);
    FIELD(rdzv_error, code);
    FIELD(rdzv_error, sys_errno);
    FIELD(rdzv_error, text);
    STRUCT(rdzv_allocator);
    FIELD(rdzv_allocator, alloc);
    FIELD(rdzv_allocator, free);
    FIELD(rdzv_allocator, ctx);
}

static void server(void)
{
    STRUCT(rdzv_server_options);
    FIELD(rdzv_server_options, size);
    FIELD(rdzv_server_options, loop);
    FIELD(rdzv_server_options, host);
    FIELD(rdzv_server_options, port);
    FIELD(rdzv_server_options, listen_fd);
    FIELD(rdzv_server_options, backlog);
    FIELD(rdzv_server_options, max_key_bytes);
    FIELD(rdzv_server_options, max_value_bytes);
    FIELD(rdzv_server_options, max_request_keys);
    FIELD(rdzv_server_options, max_request_bytes);
    FIELD(rdzv_server_options, max_store_bytes);
    FIELD(rdzv_server_options, max_unread_bytes);
    FIELD(rdzv_server_options, allocator);
    FIELD(rdzv_server_options, log);
    FIELD(rdzv_server_options, log_ctx);
    FIELD(rdzv_server_options, max_connections);
    FIELD(rdzv_server_options, max_buffer_bytes);
    FIELD(rdzv_server_options, request_timeout_ms);
    FIELD(rdzv_server_options, max_keys);
    FIELD(rdzv_server_options, forget_after_ms);
    FIELD(rdzv_server_options, log_level);
    STRUCT(rdzv_server_stats);
    FIELD(rdzv_server_stats, size);
    FIELD(rdzv_server_stats, connections);
    FIELD(rdzv_server_stats, accepted);
    FIELD(rdzv_server_stats, refused);
    FIELD(rdzv_server_stats, requests);
    FIELD(rdzv_server_stats, keys);
    FIELD(rdzv_server_stats, store_bytes);
    FIELD(rdzv_server_stats, waiting);
    FIELD(rdzv_server_stats, buffer_bytes);
    STRUCT(rdzv_job_options);
    FIELD(rdzv_job_options, size);
    FIELD(rdzv_job_options, run_id);
    FIELD(rdzv_job_options, host);
    FIELD(rdzv_job_options, port);
    FIELD(rdzv_job_options, listen_fd);
    FIELD(rdzv_job_options, backlog);
    FIELD(rdzv_job_options, max_store_bytes);
    FIELD(rdzv_job_options, max_keys);
    FIELD(rdzv_job_options, max_connections);
    FIELD(rdzv_job_options, max_buffer_bytes);
    FIELD(rdzv_job_options, forget_after_ms);
}

static void client(void)
{
    STRUCT(rdzv_bytes);
    FIELD(rdzv_bytes, data);
    FIELD(rdzv_bytes, len_bytes);
    STRUCT(rdzv_reply);
    FIELD(rdzv_reply, number);
    FIELD(rdzv_reply, values);
    FIELD(rdzv_reply, count);
    STRUCT(rdzv_client_options);
    FIELD(rdzv_client_options, size);
    FIELD(rdzv_client_options, drive);
    FIELD(rdzv_client_options, dialect);
    FIELD(rdzv_client_options, loop);
    FIELD(rdzv_client_options, host);
    FIELD(rdzv_client_options, port);
    FIELD(rdzv_client_options, flags);
    FIELD(rdzv_client_options, connect_timeout_ms);
    FIELD(rdzv_client_options, hello_timeout_ms);
    FIELD(rdzv_client_options, timeout_ms);
    FIELD(rdzv_client_options, reply_timeout_ms);
    FIELD(rdzv_client_options, max_key_bytes);
    FIELD(rdzv_client_options, max_value_bytes);
    FIELD(rdzv_client_options, max_request_keys);
    FIELD(rdzv_client_options, max_reply_bytes);
    FIELD(rdzv_client_options, max_pending_bytes);
    FIELD(rdzv_client_options, allocator);
    FIELD(rdzv_client_options, log);
    FIELD(rdzv_client_options, log_ctx);
}

int main(void)
{
    common();
    server();
    client();
    return 0;
}
