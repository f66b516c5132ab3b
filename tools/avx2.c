/* An x86 CPU without AVX-512, VNNI, BF16 and AMX, as far as a process can tell.
 *
 * tools/avx2.py replaces the instruction CPUID by a breakpoint in copies of the libraries that
 * choose kernels by it. This library, preloaded, answers it: with what the CPU says, minus what a
 * CPU with AVX2 alone lacks. SIGTRAP is taken because Python's faulthandler takes SIGILL.
 */
#define _GNU_SOURCE
#include <cpuid.h>
#include <dlfcn.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <ucontext.h>

#define BIT(n) (1u << (n))

enum { EAX, EBX, ECX, EDX };

struct hidden {
    uint32_t leaf, subleaf, bits[4];
};

static const struct hidden HIDDEN[] = {
    /* EBX: AVX-512 F, DQ, IFMA, PF, ER, CD, BW, VL. ECX: VBMI, VBMI2, GFNI, VNNI, BITALG,
     * VPOPCNTDQ. EDX: 4VNNIW, 4FMAPS, VP2INTERSECT, AMX BF16, FP16, AMX TILE, AMX INT8. */
    {7, 0,
     {0,
      BIT(16) | BIT(17) | BIT(21) | BIT(26) | BIT(27) | BIT(28) | BIT(30) | BIT(31),
      BIT(1) | BIT(6) | BIT(8) | BIT(11) | BIT(12) | BIT(14),
      BIT(2) | BIT(3) | BIT(8) | BIT(22) | BIT(23) | BIT(24) | BIT(25)}},
    /* EAX: AVX-VNNI, AVX-512 BF16, AMX FP16, AVX-IFMA. EDX: AVX-VNNI INT8, AVX-NE-CONVERT,
     * AMX COMPLEX, AVX-VNNI INT16, AVX10. */
    {7, 1,
     {BIT(4) | BIT(5) | BIT(21) | BIT(23), 0, 0,
      BIT(4) | BIT(5) | BIT(8) | BIT(10) | BIT(19)}},
    /* The states an operating system saves for AVX-512 and AMX. */
    {13, 0, {BIT(5) | BIT(6) | BIT(7) | BIT(17) | BIT(18), 0, 0, 0}},
};

static void hide(uint32_t leaf, uint32_t subleaf, uint32_t answer[4]) {
    for (size_t i = 0; i < sizeof HIDDEN / sizeof *HIDDEN; i++)
        if (HIDDEN[i].leaf == leaf && HIDDEN[i].subleaf == subleaf)
            for (int each = EAX; each <= EDX; each++)
                answer[each] &= ~HIDDEN[i].bits[each];
}

static void answer_cpuid(int number, siginfo_t *info, void *context) {
    (void)info;
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    const unsigned char *next = (const unsigned char *)registers[REG_RIP];
    if (next[-1] != 0xCC || next[0] != 0x90) { /* a breakpoint of somebody else */
        signal(number, SIG_DFL);
        raise(number);
        return;
    }
    uint32_t leaf = (uint32_t)registers[REG_RAX], subleaf = (uint32_t)registers[REG_RCX];
    uint32_t answer[4];
    __cpuid_count(leaf, subleaf, answer[EAX], answer[EBX], answer[ECX], answer[EDX]);
    hide(leaf, subleaf, answer);
    registers[REG_RAX] = answer[EAX];
    registers[REG_RBX] = answer[EBX];
    registers[REG_RCX] = answer[ECX];
    registers[REG_RDX] = answer[EDX];
}

__attribute__((constructor)) static void start(void) {
    struct sigaction action = {.sa_sigaction = answer_cpuid, .sa_flags = SA_SIGINFO | SA_NODEFER};
    sigaction(SIGTRAP, &action, NULL);
}

/* What glibc (2.33) tells a program of CPUID; its own numbers stand for the leaves. */
struct feature {
    uint32_t cpuid[4], active[4];
};

const struct feature *__x86_get_cpuid_feature_leaf(unsigned int number) {
    static struct feature masked[16];
    static const struct feature none;
    typedef const struct feature *ask(unsigned int);
    ask *glibc = (ask *)dlsym(RTLD_NEXT, "__x86_get_cpuid_feature_leaf");
    if (!glibc || number >= sizeof masked / sizeof *masked)
        return &none;
    masked[number] = *glibc(number);
    uint32_t subleaf = number == 6; /* number 1 is leaf 7, 6 is its subleaf 1 */
    if (number == 1 || number == 6) {
        hide(7, subleaf, masked[number].cpuid);
        hide(7, subleaf, masked[number].active);
    }
    return &masked[number];
}
