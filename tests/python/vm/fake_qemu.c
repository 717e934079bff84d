/* QEMU's side of the plugin interface, as far as the plugin uses it: a test translates blocks and runs them. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef void (*executed)(unsigned int, void *);
typedef void (*accessed)(unsigned int, uint32_t, uint64_t, void *);

struct qemu_plugin_insn {
    uint8_t code[16];
    size_t size;
    accessed on_access[2];
    void *data[2];
    int wants[2];
    int callbacks;
};

struct qemu_plugin_tb {
    uint64_t address;
    size_t instructions;
    struct qemu_plugin_insn insn[8];
    executed on_run;
    void *data;
};

static void (*on_translation)(uint64_t, struct qemu_plugin_tb *);

void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t id, void (*given)(uint64_t, struct qemu_plugin_tb *))
{
    (void)id;
    on_translation = given;
}

void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *block, executed given, int flags, void *data)
{
    (void)flags;
    block->on_run = given;
    block->data = data;
}

void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *insn, accessed given, int flags, int wants, void *data)
{
    (void)flags;
    insn->on_access[insn->callbacks] = given;
    insn->wants[insn->callbacks] = wants;
    insn->data[insn->callbacks++] = data;
}

void qemu_plugin_reset(uint64_t id, void (*then)(uint64_t)) { then(id); }
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *block) { return block->instructions; }
uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb *block) { return block->address; }
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(struct qemu_plugin_tb *block, size_t at) { return &block->insn[at]; }
size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *insn) { return insn->size; }
const void *qemu_plugin_insn_data(const struct qemu_plugin_insn *insn) { return insn->code; }
unsigned int qemu_plugin_mem_size_shift(uint32_t access) { return access; }

/* A block of so many instructions of one byte, the last of which is the code given. */
struct qemu_plugin_tb *translate(uint64_t address, size_t instructions, const uint8_t *code, size_t size)
{
    struct qemu_plugin_tb *block = calloc(1, sizeof *block);
    block->address = address;
    block->instructions = instructions;
    for (size_t at = 0; at < instructions; at++) {
        block->insn[at].code[0] = 0x90;
        block->insn[at].size = 1;
    }
    if (size) {
        memcpy(block->insn[instructions - 1].code, code, size);
        block->insn[instructions - 1].size = size;
    }
    on_translation(1, block);
    return block;
}

void run(struct qemu_plugin_tb *block) { block->on_run(0, block->data); }

/* The last instruction of a block reads (1) or writes (2) 1 << shift bytes there. */
void access_memory(struct qemu_plugin_tb *block, int kind, uint64_t address, uint32_t shift)
{
    struct qemu_plugin_insn *insn = &block->insn[block->instructions - 1];
    for (int at = 0; at < insn->callbacks; at++)
        if (insn->wants[at] & kind)
            insn->on_access[at](0, shift, address, insn->data[at]);
}
