/* runner.c: main of every Check executable. */
#include "runner.h"

#include <signal.h>
#include <stdlib.h>

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    SRunner *runner = srunner_create(suite());
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
