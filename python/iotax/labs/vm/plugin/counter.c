/* A TCG plugin that counts how often each translated block runs, and how many instructions it has.
 *
 * All that it knows stands in one file, which iotax maps and reads while the machine runs (iotax.labs.vm.counted has the same
 * layout). iotax writes the address of a function of the guest's kernel there: each call of it while `armed` is set is a mark.
 * The first mark copies every count to `first`, each later one to `last`.
 *
 * Only functions that QEMU's plugin interface has had from version 1 on; declared here, since few distributions package its
 * header (docs.qemu.org, "TCG Plugins"). One thread runs all processors under -icount, so nothing here locks.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define CELLS_MAX (1u << 20)
#define TABLE_SIZE (CELLS_MAX * 2)

struct qemu_plugin_tb;
typedef uint64_t plugin_id;
typedef void (*tb_translated)(plugin_id, struct qemu_plugin_tb *);
typedef void (*tb_executed)(unsigned int, void *);
extern void qemu_plugin_register_vcpu_tb_trans_cb(plugin_id, tb_translated);
/* The flag is an enum of QEMU's; 0 is QEMU_PLUGIN_CB_NO_REGS. */
extern void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *, tb_executed, int, void *);
extern size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
extern uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb *);

EXPORT int qemu_plugin_version = PLUGIN_VERSION;

struct cell {
    uint64_t address;
    uint64_t instructions;
    uint64_t runs;
    uint64_t first;
    uint64_t last;
};

struct file {
    uint64_t cells;
    uint64_t lost; /* blocks that found the table full */
    uint64_t mark_address;
    uint64_t armed;
    uint64_t marks; /* since it was armed */
    uint64_t reserved[3];
    struct cell cell[CELLS_MAX];
};

static volatile struct file *file;
static uint32_t table[TABLE_SIZE]; /* place of a cell, plus one */

static void mark(void)
{
    uint64_t marks = file->marks;
    uint64_t cells = file->cells;
    for (uint64_t at = 0; at < cells; at++) {
        if (marks == 0)
            file->cell[at].first = file->cell[at].runs;
        file->cell[at].last = file->cell[at].runs;
    }
    file->marks = marks + 1;
}

static void executed(unsigned int cpu, void *data)
{
    volatile struct cell *cell = data;
    (void)cpu;
    if (cell->address == file->mark_address && file->armed)
        mark();
    cell->runs++;
}

static volatile struct cell *cell_of(uint64_t address, uint64_t instructions)
{
    uint64_t hash = (address ^ instructions << 48) * 0x9e3779b97f4a7c15u;
    for (uint32_t at = hash >> 43;; at = (at + 1) % TABLE_SIZE) {
        uint64_t cells = file->cells;
        if (table[at] == 0) {
            if (cells == CELLS_MAX) {
                file->lost++;
                return NULL;
            }
            table[at] = cells + 1;
            file->cell[cells].address = address;
            file->cell[cells].instructions = instructions;
            file->cells = cells + 1;
            return &file->cell[cells];
        }
        volatile struct cell *cell = &file->cell[table[at] - 1];
        if (cell->address == address && cell->instructions == instructions)
            return cell;
    }
}

static void translated(plugin_id id, struct qemu_plugin_tb *block)
{
    (void)id;
    volatile struct cell *cell = cell_of(qemu_plugin_tb_vaddr(block), qemu_plugin_tb_n_insns(block));
    if (cell)
        qemu_plugin_register_vcpu_tb_exec_cb(block, executed, 0, (void *)cell);
}

EXPORT int qemu_plugin_install(plugin_id id, const void *info, int argc, char **argv)
{
    (void)info;
    if (argc != 1 || strncmp(argv[0], "out=", 4) != 0) {
        fprintf(stderr, "iotax's plugin takes out=FILE\n");
        return -1;
    }
    int descriptor = open(argv[0] + 4, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (descriptor < 0) {
        perror(argv[0] + 4);
        return -1;
    }
    /* Not ftruncate: a disk that fills up later would kill the machine where it counts. */
    int wrong = posix_fallocate(descriptor, 0, sizeof *file);
    if (wrong) {
        fprintf(stderr, "%s: %s\n", argv[0] + 4, strerror(wrong));
        close(descriptor);
        return -1;
    }
    void *mapped = mmap(NULL, sizeof *file, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    close(descriptor);
    if (mapped == MAP_FAILED) {
        perror(argv[0] + 4);
        return -1;
    }
    file = mapped;
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
    return 0;
}
