/* why.h: why the core ended a connection. 0 is "it did not"; the texts complete a log line. */
#ifndef RDZV_CORE_WHY_H
#define RDZV_CORE_WHY_H

#define RDZV__WHYS(X)                                                                              \
    X(OK, "nothing is wrong")                                                                      \
    X(BAD_START, "its first bytes are not a c10d request; not a PyTorch client?")                  \
    X(TLS, "it starts a TLS handshake, which this version does not speak")                         \
    X(NATIVE,                                                                                      \
      "its first byte is reserved for the native protocol, which this version does not speak")     \
    X(WATCH_KEY, "it asks to watch keys (PyTorch 2.0 or older, C++ only), which is not served")    \
    X(BAD_OPCODE, "it sent an opcode that its dialect does not have")                              \
    X(LONG_KEY, "it announced a key longer than max_key_bytes")                                    \
    X(LONG_VALUE, "it announced a value longer than max_value_bytes")                              \
    X(MANY_KEYS, "it announced more keys in one request than max_request_keys")                    \
    X(LONG_REQUEST, "its request is longer than max_request_bytes")                                \
    X(NOT_NUMBER, "it asked to add to a value that is not a decimal 64-bit number")                \
    X(UNREAD, "it does not read its answers: max_unread_bytes are waiting for it")                 \
    X(BUFFERS_FULL, "unfinished requests and unread answers of all clients are max_buffer_bytes")  \
    X(SLOW_REQUEST, "it began a request and did not finish it within request_timeout_ms")          \
    X(STORE_FULL, "the store holds max_store_bytes")                                               \
    X(KEYS_FULL, "the store holds max_keys names")                                                 \
    X(NO_MEMORY, "out of memory while serving it")

enum {
#define RDZV__WHY_ENUM(name, text) RDZV__WHY_##name,
    RDZV__WHYS(RDZV__WHY_ENUM)
#undef RDZV__WHY_ENUM
        RDZV__WHY_COUNT
};

const char *rdzv__why_text(int why);

#endif
