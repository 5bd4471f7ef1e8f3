/*
 * test_replay.c: the recorded sessions of real PyTorch clients against the core, in one piece, byte
 * by byte, and split at every point, give what the real servers answered.
 */
#include "peers.h"
#include "runner.h"

static const char *const versions[] = {"2.13.0", "1.13.1"};

/* Sends `asked` in pieces that end at `cuts[]`, to a fresh server. */
static void replay(int version, const size_t *cuts, size_t count)
{
    struct wire asked = WIRE_INIT;
    struct wire told = WIRE_INIT;
    wire_load(&asked, versions[version], "client_to_server");
    wire_load(&told, versions[version], "server_to_client");
    struct peers p;
    struct rdzv__core_options options = peers_options();
    peers_open(&p, &options);
    size_t at = 0;
    for (size_t i = 0; i < count; i++) {
        peers_send(&p, 0, asked.data + at, cuts[i] - at);
        at = cuts[i];
    }
    peers_send(&p, 0, asked.data + at, asked.len - at);
    ck_assert_uint_eq(p.got[0].len, told.len);
    if (version == 0) {
        wire_sort_list(&p.got[0]);
        wire_sort_list(&told);
    }
    ck_assert_mem_eq(p.got[0].data, told.data, told.len);
    ck_assert(p.open[0]);
    peers_eof(&p, 0);
    ck_assert_int_eq(p.why[0], -1);
    peers_close(&p);
    wire_free(&asked);
    wire_free(&told);
}

static size_t session_len(int version)
{
    struct wire asked = WIRE_INIT;
    wire_load(&asked, versions[version], "client_to_server");
    size_t len = asked.len;
    wire_free(&asked);
    return len;
}

START_TEST(whole)
{
    replay(_i, NULL, 0);
}
END_TEST

START_TEST(byte_by_byte)
{
    size_t cuts[2048];
    size_t len = session_len(_i);
    for (size_t i = 0; i < len; i++)
        cuts[i] = i;
    replay(_i, cuts, len);
}
END_TEST

START_TEST(split_at_every_point)
{
    size_t len = session_len(_i);
    for (size_t cut = 0; cut <= len; cut++)
        replay(_i, &cut, 1);
}
END_TEST

START_TEST(pieces_of_every_length)
{
    size_t len = session_len(_i);
    for (size_t piece = 2; piece < 64; piece++) {
        size_t cuts[2048];
        size_t count = 0;
        for (size_t at = piece; at < len; at += piece)
            cuts[count++] = at;
        replay(_i, cuts, count);
    }
}
END_TEST

Suite *suite(void)
{
    Suite *s = suite_create("replay");
    TCase *t = tcase_create("core");
    tcase_set_timeout(t, 100);
    tcase_add_loop_test(t, whole, 0, 2);
    tcase_add_loop_test(t, byte_by_byte, 0, 2);
    tcase_add_loop_test(t, split_at_every_point, 0, 2);
    tcase_add_loop_test(t, pieces_of_every_length, 0, 2);
    suite_add_tcase(s, t);
    return s;
}
