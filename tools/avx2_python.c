/* The interpreter of an environment, with a library preloaded; processes that it starts get it,
 * too, even those with an environment of their own, since sys.executable is this program. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int count, char **arguments) {
    (void)count;
    const char *others = getenv("LD_PRELOAD");
    if (!others || !strstr(others, LIBRARY)) {
        char all[8192];
        snprintf(all, sizeof all, "%s %s", LIBRARY, others ? others : "");
        setenv("LD_PRELOAD", all, 1);
    }
    arguments[0] = HERE;
    execv(PYTHON, arguments);
    perror(PYTHON);
    return 127;
}
