/* own_loop.h: the loop of a handle that has a thread of its own, and the way to wake it. */
#ifndef RDZV_UV_OWN_LOOP_H
#define RDZV_UV_OWN_LOOP_H

#include "error.h"

#include <uv.h>

/* On failure there is nothing to undo. */
static inline int rdzv__own_loop_init(uv_loop_t *loop, uv_async_t *async, uv_async_cb woken,
                                      void *data, rdzv_error *err)
{
    int result = uv_loop_init(loop);
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
