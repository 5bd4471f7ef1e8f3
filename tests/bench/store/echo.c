/*
 * echo.c: the limit that the store is measured against: a libuv TCP server that sends back what it
 * reads, in one write per read and without a copy. Prints its address, serves until it is killed.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <uv.h>

struct late {
    uv_write_t write;
    char bytes[];
};

static char buffer[65536];

static void check(int result, const char *what)
{
    if (result >= 0)
        return;
    fprintf(stderr, "store_echo: %s: %s\n", what, uv_strerror(result));
    exit(1);
}

static void on_closed(uv_handle_t *handle)
{
    free(handle);
}

static void on_late(uv_write_t *write, int status)
{
    (void)status; /* a broken connection is seen by its read */
    free(write->data);
}

static void give_buffer(uv_handle_t *handle, size_t wanted, uv_buf_t *ret)
{
    (void)handle;
    (void)wanted;
    *ret = uv_buf_init(buffer, sizeof buffer);
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    if (n < 0) {
        uv_close((uv_handle_t *)stream, on_closed);
        return;
    }
    uv_buf_t rest = uv_buf_init(buf->base, (unsigned)n);
    int sent = uv_try_write(stream, &rest, 1);
    if (sent < 0)
        sent = 0;
    if (sent == n)
        return;
    size_t len = (size_t)(n - sent);
    struct late *late = malloc(sizeof *late + len);
    if (late == NULL)
        exit(1);
    memcpy(late->bytes, buf->base + sent, len);
    late->write.data = late;
    rest = uv_buf_init(late->bytes, (unsigned)len);
    check(uv_write(&late->write, stream, &rest, 1, on_late), "write");
}

static void on_connection(uv_stream_t *listener, int status)
{
    check(status, "listen");
    uv_tcp_t *client = malloc(sizeof *client);
    if (client == NULL)
        exit(1);
    uv_tcp_init(listener->loop, client);
    check(uv_accept(listener, (uv_stream_t *)client), "accept");
    uv_tcp_nodelay(client, 1);
    check(uv_read_start((uv_stream_t *)client, give_buffer, on_read), "read");
}

int main(void)
{
    uv_loop_t *loop = uv_default_loop();
    uv_tcp_t listener;
    struct sockaddr_in address;
    int len = sizeof address;
    struct rlimit limit;
    signal(SIGPIPE, SIG_IGN);
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
    uv_ip4_addr("127.0.0.1", 0, &address);
    uv_tcp_init(loop, &listener);
    check(uv_tcp_bind(&listener, (const struct sockaddr *)&address, 0), "bind");
    check(uv_listen((uv_stream_t *)&listener, 4096, on_connection), "listen");
    check(uv_tcp_getsockname(&listener, (struct sockaddr *)&address, &len), "address");
    printf("echo ready on 127.0.0.1:%u\n", (unsigned)ntohs(address.sin_port));
    fflush(stdout);
    return uv_run(loop, UV_RUN_DEFAULT);
}
