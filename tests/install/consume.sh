#!/usr/bin/env bash
# consume.sh WAY: one test of tests/install/CMakeLists.txt, which sets BUILD, WORK, SOURCE, LIBDIR,
# CC, CMAKE, STATIC, DAEMON and VERSION.
set -euo pipefail
prefix=$WORK/moved
libdir=$prefix/$LIBDIR
export PKG_CONFIG_PATH=$libdir/pkgconfig
work=$WORK/$1
rm -rf "$work"
mkdir -p "$work"

fail() {
    echo "$*" >&2
    exit 1
}

# Runs both examples of one kind, shared or static.
run_examples() { # FOLDER KIND
    local folder=$1 kind=$2
    "$folder/save_blocking_$kind" "$folder/checkpoints-$kind" | tee "$folder/said"
    grep -qx equal "$folder/said" || fail "save_blocking_$kind did not load what it saved"
    "$folder/serve_$kind" 0 0.1 | tee "$folder/said"
    grep -qx closed "$folder/said" || fail "serve_$kind did not close its server"
}

run_serve() {
    "$SOURCE/tests/unit/rdzv/run_serve.sh" "$1"
}

# An example that is said to be static must not load our shared library.
assert_static() {
    ! readelf -d "$1" | grep -E 'NEEDED.*lib(ckpt|rdzv)' || fail "$1 loads the shared library"
}

# Installed to one place, moved to another: everything below works from there.
prefix() {
    rm -rf "$WORK/first" "$prefix"
    "$CMAKE" --install "$BUILD" --prefix "$WORK/first"
    mv "$WORK/first" "$prefix"
}

# One compile line, as the top of each example gives it; uv.h needs gnu99.
compile() { # EXAMPLE LIBRARY [WHAT ELSE THE EXAMPLE USES]
    # shellcheck disable=SC2046 # flags are words
    $CC -std=gnu99 -Wall -Wextra -Werror "$SOURCE/examples/$1.c" -o "$work/$1_shared" \
        $(pkg-config --cflags --libs "${@:2}")
    [ "$STATIC" = ON ] || return 0
    # shellcheck disable=SC2046
    $CC -std=gnu99 -Wall -Wextra -Werror "$SOURCE/examples/$1.c" -o "$work/$1_static" \
        $(pkg-config --static --cflags --libs "${@:2}" | sed "s/-l${2#lib}\b/-l:$2.a/g")
    assert_static "$work/$1_static"
}

pkg_config() {
    [ "$(pkg-config --modversion libckpt)" = "$VERSION" ] || fail "libckpt.pc has another version"
    compile save_blocking libckpt
    compile serve librdzv libuv
    LD_LIBRARY_PATH=$libdir run_examples "$work" shared
    [ "$STATIC" != ON ] || run_examples "$work" static
}

cmake_project() {
    "$CMAKE" -G Ninja -S "$SOURCE/tests/install/consumer" -B "$work" -DCMAKE_C_COMPILER="$CC" \
        -DEXAMPLES="$SOURCE/examples" -DSTATIC="$STATIC" "$@"
    "$CMAKE" --build "$work"
    run_examples "$work" shared
    if [ "$STATIC" = ON ]; then
        assert_static "$work/save_blocking_static"
        assert_static "$work/serve_static"
        run_examples "$work" static
    fi
}

find_package() {
    cmake_project -DCMAKE_PREFIX_PATH="$prefix"
}

add_subdirectory() {
    cmake_project -DEMBED="$SOURCE" -DWITH_DAEMON=OFF
}

# Before 1.0 another minor version is another interface.
version() {
    mkdir "$work/project"
    cat >"$work/project/CMakeLists.txt" <<'PROJECT'
cmake_minimum_required(VERSION 3.22)
project(version LANGUAGES C)
foreach(package ckpt rdzv)
    find_package(${package} 0.2 QUIET)
    if(${package}_FOUND)
        message(FATAL_ERROR "${package} 0.1 passed for 0.2")
    endif()
    find_package(${package} 0.1.0 EXACT REQUIRED)
    if(NOT TARGET ${package}::${package})
        message(FATAL_ERROR "no target ${package}::${package}")
    endif()
endforeach()
PROJECT
    "$CMAKE" -S "$work/project" -B "$work/build" -DCMAKE_PREFIX_PATH="$prefix"
}

# Only public headers are installed, each library finds its own, and the daemon finds its library.
content() {
    (cd "$prefix/include" && find . -type f | sort) >"$work/headers"
    (cd "$SOURCE" && find lib*/include -name '*.h' | sed 's#.*/include/#./#' | sort) >"$work/wanted"
    diff "$work/wanted" "$work/headers" || fail "installed headers are not the public ones"
    local name
    for name in ckpt rdzv; do
        [ -L "$libdir/lib$name.so" ] || fail "lib$name.so is no link"
        readelf -d "$libdir/lib$name.so" | grep -q "SONAME.*\[lib$name.so.${VERSION%%.*}\]" ||
            fail "lib$name.so has no soname with the major version"
        ! grep -rn "$SOURCE" "$libdir/pkgconfig" "$libdir/cmake" ||
            fail "the source tree's place is in an installed file"
    done
    if [ "$DAEMON" = ON ]; then
        "$prefix/bin/rdzvd" --version | grep -F "$VERSION" || fail "rdzvd does not run from there"
        [ -f "$prefix/share/man/man8/rdzvd.8" ] || fail "rdzvd.8 is not installed"
    fi
}

"$1"
