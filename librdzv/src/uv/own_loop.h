/* own_loop.h: the loop of a handle that was given none, and the way to wake its thread. */
#ifndef RDZV_UV_OWN_LOOP_H
#define RDZV_UV_OWN_LOOP_H

#include "error.h"
#include "event.h"

#include <uv.h>

enum { RDZV__LOOP_DESCRIPTORS = 8 }; /* a loop needs fewer */

/* As uv_loop_init, which ends the process when its very first descriptors cannot be had. */
static inline int rdzv__loop_init(uv_loop_t *loop)
{
    int spare[RDZV__LOOP_DESCRIPTORS];
    int count = 0;
    while (count < RDZV__LOOP_DESCRIPTORS && (spare[count] = event_open()) >= 0)
        count++;
    int error = count < RDZV__LOOP_DESCRIPTORS ? spare[count] : 0;
    while (count > 0)
        close(spare[--count]);
    return error != 0 ? error : uv_loop_init(loop);
}

/* On failure there is nothing to undo. */
static inline int rdzv__own_loop_init(uv_loop_t *loop, uv_async_t *async, uv_async_cb woken,
                                      void *data, rdzv_error *err)
{
    int result = rdzv__loop_init(loop);
    if (result == 0) {
        result = uv_async_init(loop, async, woken);
        if (result != 0)
            uv_loop_close(loop);
    }
    if (result != 0)
        return rdzv__fail_sys(err, RDZV_EIO, -result, "event loop");
    async->data = data;
    return RDZV_OK;
}

#endif
