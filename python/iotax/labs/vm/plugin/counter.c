/* A TCG plugin that counts a guest's instructions by function and by the calls that led there.
 *
 * Everything that iotax reads stands in one file, which both map (iotax.labs.vm.counted has the same layout). iotax writes
 * where each function begins; from then on the plugin keeps a tree of calls. A node is a function under its callers, and has
 * the instructions that it ran itself, the bytes that it copied, and, where it was asked, the cache lines that it fetched. A
 * copying function copies what its instructions load; others copy by string instructions alone. iotax also writes the address of a function: each call of it while `armed` is set is a mark. The first mark
 * copies every count to `first`, each later one to `last`.
 *
 * The guest's kernel is not changed. A `call` stores its return address, and where it stores it tells on which stack the
 * processor is and which earlier calls have returned. Code that runs at a return address has returned, too. (The loads of
 * `ret` would tell it sooner, but QEMU 7.2 reports others' loads for them.) A jump into another function takes the place of
 * the function that it left, as a tail call does. Programs have no stack here: a function of one has no caller, and most
 * programs are one function.
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
#define KERNEL (1ull << 63) /* addresses from here on are the kernel's */
#define PAGE (~0xfffull)
#define CELLS_MAX (1u << 22)
#define FUNCTIONS_MAX (1u << 18)
#define NODES_MAX (1u << 19)
#define STACKS_MAX (1u << 12)
#define DEPTH_MAX 120
#define STACK_SHIFT 14 /* a thread's stack and that of interrupts have 16 KiB, and are aligned to them */
/* The modelled cache: 32 KiB in 64 sets of 8 lines of 64 bytes, by virtual address, the least recently used goes. */
#define LINE_SHIFT 6
#define LINE (1u << LINE_SHIFT)
#define ACCESS_MAX 16 /* bytes that one access can have */
#define SETS 64
#define WAYS 8

struct qemu_plugin_tb;
struct qemu_plugin_insn;
typedef uint64_t plugin_id;
typedef uint32_t memory_info;
typedef struct {
    const char *target_name;
    struct {
        int min;
        int cur;
    } version;
} info;
typedef void (*tb_translated)(plugin_id, struct qemu_plugin_tb *);
typedef void (*tb_executed)(unsigned int, void *);
typedef void (*accessed)(unsigned int, memory_info, uint64_t, void *);
extern void qemu_plugin_register_vcpu_tb_trans_cb(plugin_id, tb_translated);
/* The flag is an enum of QEMU's; 0 is QEMU_PLUGIN_CB_NO_REGS. */
extern void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *, tb_executed, int, void *);
extern void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *, accessed, int, int, void *);
extern size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
extern uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb *);
extern struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *, size_t);
extern size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *);
extern unsigned int qemu_plugin_mem_size_shift(memory_info);
extern void qemu_plugin_reset(plugin_id, void (*)(plugin_id));
/* One name for two functions: version 3 of the interface changed it. */
extern const void *data_of(const struct qemu_plugin_insn *) __asm__("qemu_plugin_insn_data");
extern size_t data_into(const struct qemu_plugin_insn *, void *, size_t) __asm__("qemu_plugin_insn_data");

EXPORT int qemu_plugin_version = PLUGIN_VERSION;

enum { READS = 1, WRITES = 2 }; /* qemu_plugin_mem_rw */
enum { NOBODY = 0 };
/* Kinds of functions: nobody calls it (interrupts, new threads); all that it loads it stores elsewhere; it is one of a
 * program whose functions are told apart. */
enum { ROOT = 1, COPIES = 2, TOLD_APART = 4 };

struct function {
    uint64_t address;
    uint64_t kinds;
};

struct counts {
    uint64_t instructions;
    uint64_t copied_bytes;
    uint64_t lines;
};

struct node {
    uint32_t parent;
    uint32_t function;
    struct counts now, first, last;
};

struct file {
    volatile uint64_t mark_address;
    volatile uint64_t armed;
    uint64_t functions; /* that stand below, ascending */
    volatile uint64_t epoch; /* counted up by whoever has written functions */
    volatile uint64_t marks; /* since it was armed */
    uint64_t nodes;
    uint64_t lost; /* what found a table full */
    uint64_t cells;
    uint64_t reserved[8];
    struct function function[FUNCTIONS_MAX];
    struct node node[NODES_MAX]; /* the first is nobody's: the parent of what has no caller */
};

struct cell {
    uint64_t address;
    uint32_t instructions;
    uint32_t bytes;
    uint32_t function;
    uint64_t epoch; /* for which `function` holds */
};

struct frame {
    uint64_t sp;       /* where its return address stands; no call below it has returned */
    uint64_t back;     /* its return address */
    struct cell *cell; /* that it runs, NULL before its first */
    uint32_t parent;
    uint32_t node;
    uint64_t epoch;     /* for which both hold */
    int base;           /* the function that was running as the stack came into use */
    struct stack *from; /* where the base runs on, NULL where it does on its stack */
};

struct stack {
    uint64_t number; /* address >> STACK_SHIFT */
    uint32_t depth;
    struct frame frame[DEPTH_MAX];
};

static struct file *file;
static int interface; /* QEMU's version of it */
static plugin_id self;
static int lines_wanted;
static int lines_counted; /* from when functions are known: a guest would take minutes to boot */
static struct cell cells[CELLS_MAX];
static uint32_t cells_used;
static uint32_t cell_table[CELLS_MAX * 2]; /* place of a cell, plus one */
static uint32_t node_table[NODES_MAX * 2]; /* place of a node */
static uint64_t epoch;                     /* that the tables are of */
static struct stack *stacks[STACKS_MAX];
static struct frame loose; /* of what runs on no known stack: programs, and the kernel just entered */
static struct frame *running = &loose;
static struct stack *running_on; /* NULL for `loose` */
static struct cell *current;
static int entered; /* the kernel, from a program, and nothing was called yet */
static uint64_t cache[SETS][WAYS];
static uint64_t recent; /* the line touched last: again, it changes nothing */

static uint64_t mixed(uint64_t value)
{
    value *= 0x9e3779b97f4a7c15u;
    return value ^ value >> 29;
}

/* The tree of calls. */

static uint32_t function_at(uint64_t address)
{
    uint64_t low = 0, high = file->functions; /* the last that begins at or before it */
    while (low + 1 < high) {
        uint64_t middle = (low + high) / 2;
        if (file->function[middle].address <= address)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static uint32_t function_of(struct cell *cell)
{
    if (cell->epoch != epoch) {
        cell->function = function_at(cell->address);
        cell->epoch = epoch;
    }
    return cell->function;
}

static uint32_t child(uint32_t parent, uint32_t function)
{
    if (file->function[function].kinds & ROOT)
        parent = NOBODY;
    uint64_t mask = NODES_MAX * 2 - 1;
    for (uint64_t at = mixed((uint64_t)parent << 32 | function) & mask;; at = (at + 1) & mask) {
        uint32_t place = node_table[at];
        if (place == 0) {
            if (file->nodes == NODES_MAX) {
                file->lost++;
                return NOBODY;
            }
            place = node_table[at] = file->nodes;
            file->node[place] = (struct node){.parent = parent, .function = function};
            file->nodes = place + 1;
            return place;
        }
        if (file->node[place].parent == parent && file->node[place].function == function)
            return place;
    }
}

/* Before functions are known, all are nobody's. */
static void name(struct frame *frame, uint32_t parent, struct cell *cell)
{
    frame->parent = parent;
    frame->cell = cell;
    frame->node = epoch ? child(parent, function_of(cell)) : NOBODY;
    frame->epoch = epoch;
}

static int runs(const struct frame *frame, struct cell *cell)
{
    if (frame->cell == NULL || frame->epoch != epoch)
        return 0;
    return frame->cell == cell || (epoch && function_of(frame->cell) == function_of(cell));
}

/* Stacks. */

static struct stack *stack_of(uint64_t sp)
{
    uint64_t number = sp >> STACK_SHIFT, mask = STACKS_MAX - 1, first = mixed(number) & mask;
    for (uint64_t at = first;; at = (at + 1) & mask) {
        if (stacks[at] == NULL) {
            stacks[at] = malloc(sizeof *stacks[at]);
            if (stacks[at] == NULL)
                abort();
            stacks[at]->number = number;
            stacks[at]->depth = 0;
            return stacks[at];
        }
        if (stacks[at]->number == number)
            return stacks[at];
        if (((at + 1) & mask) == first) { /* all in use: this one's thread is as likely gone as any other */
            stacks[at]->number = number;
            stacks[at]->depth = 0;
            return stacks[at];
        }
    }
}

static struct frame *top_of(struct stack *stack)
{
    return &stack->frame[stack->depth - 1];
}

static void pop(struct stack *stack, uint64_t sp)
{
    while (stack->depth > 0 && top_of(stack)->sp <= sp)
        stack->depth--;
}

/* The frame that is on top, with nodes for those that were called before functions were known. */
static struct frame *refreshed(struct stack *stack)
{
    struct frame *top = top_of(stack);
    uint32_t parent = NOBODY;
    if (top->epoch == epoch)
        return top;
    for (uint32_t at = 0; at < stack->depth; at++) {
        struct frame *frame = &stack->frame[at];
        if (frame->epoch != epoch && frame->cell != NULL)
            name(frame, parent, frame->cell);
        parent = frame->node;
    }
    return top;
}

static void called(unsigned int cpu, memory_info access, uint64_t sp, void *data)
{
    (void)cpu;
    (void)access;
    struct cell *caller = data;
    if (caller != current)
        return; /* QEMU 7.2 reports stores of helpers to the last call through a register, too */
    struct stack *stack = stack_of(sp);
    if (entered)
        stack->depth = 0; /* a thread in its program has nothing on its kernel stack */
    entered = 0;
    pop(stack, sp);
    if (stack != running_on)
        while (stack->depth > 0 && top_of(stack)->base && top_of(stack)->sp <= sp + 8)
            stack->depth--;
    if (stack->depth == 0) {
        stack->frame[0] = *running;
        stack->frame[0].sp = sp + 8;
        stack->frame[0].base = 1;
        stack->frame[0].from = running_on == stack ? NULL : running_on;
        stack->depth = 1;
    }
    struct frame *top = refreshed(stack);
    if (!runs(top, caller))
        name(top, top->parent, caller); /* it came there by a switch of stacks */
    if (stack->depth < DEPTH_MAX) {
        stack->frame[stack->depth] =
            (struct frame){.sp = sp, .back = caller->address + caller->bytes, .parent = top->node, .epoch = epoch};
        stack->depth++;
    }
    running = top_of(stack);
    running_on = stack;
}

/* Ends the calls that return to this block, else those of which it is a caller, if there are such. */
static void returned(struct cell *cell)
{
    uint32_t kept = 0;
    for (uint32_t depth = running_on->depth; depth > 1 && kept == 0; depth--)
        if (running_on->frame[depth - 1].back == cell->address)
            kept = depth - 1;
    for (uint32_t depth = running_on->depth - 1; depth > 0 && kept == 0 && !runs(running, cell); depth--)
        if (runs(&running_on->frame[depth - 1], cell))
            kept = depth;
    if (kept == 0)
        return;
    running_on->depth = kept;
    if (top_of(running_on)->base && top_of(running_on)->from && top_of(running_on)->from->depth > 0)
        running_on = top_of(running_on)->from;
    running = refreshed(running_on);
}

/* What runs. */

static void mark(void)
{
    uint64_t marks = file->marks, nodes = file->nodes;
    for (uint64_t place = 0; place < nodes; place++) {
        struct node *node = &file->node[place];
        if (marks == 0)
            node->first = node->now;
        node->last = node->now;
    }
    file->marks = marks + 1;
}

/* Another function than the one that ran. */
static void run(struct cell *cell)
{
    if (cell->address < KERNEL) {
        running = &loose;
        running_on = NULL;
        name(&loose, NOBODY, cell);
    } else if (running == &loose && loose.cell != NULL && loose.cell->address < KERNEL) {
        name(&loose, loose.node, cell); /* the kernel, entered from a program */
        entered = 1;
    } else {
        name(running, running->epoch == epoch ? running->parent : NOBODY, cell);
    }
}

static void translated(plugin_id id, struct qemu_plugin_tb *block);

static void translate_anew(plugin_id id)
{
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
}

static void learn(void)
{
    memset(node_table, 0, sizeof node_table);
    file->nodes = 1;
    file->node[0] = (struct node){0};
    epoch = file->epoch;
    if (running_on)
        running = refreshed(running_on);
    lines_counted = lines_wanted;
    qemu_plugin_reset(self, translate_anew); /* forgets what is translated: it may be told apart now */
}

static void executed(unsigned int cpu, void *data)
{
    struct cell *cell = data;
    (void)cpu;
    if (file->epoch != epoch)
        learn();
    if (cell->address == file->mark_address && file->armed)
        mark();
    current = cell;
    if (epoch == 0 && running_on && cell->address >= KERNEL) {
        /* Without functions, calls and returns alone are followed. */
        if (running->cell != NULL && cell->address == running->back)
            returned(cell);
        running->cell = cell;
        return;
    }
    if (running_on && running->cell != NULL && (cell->address == running->back || !runs(running, cell)))
        returned(cell);
    if (!runs(running, cell))
        run(cell);
    file->node[running->node].now.instructions += cell->instructions;
}

static void copied(unsigned int cpu, memory_info access, uint64_t address, void *data)
{
    (void)cpu;
    (void)address;
    if (data == current) /* QEMU 7.2 reports loads of helpers to others, too */
        file->node[running->node].now.copied_bytes += 1u << qemu_plugin_mem_size_shift(access);
}

static void touch(uint64_t line)
{
    uint64_t *ways = cache[line % SETS], last = ways[0];
    recent = line;
    ways[0] = line;
    /* The lines before its place move on by one, into the place that it leaves. */
    for (int at = 1; last != line; at++) {
        if (at == WAYS) {
            file->node[running->node].now.lines++;
            return;
        }
        uint64_t next = ways[at];
        ways[at] = last;
        last = next;
    }
}

static void touched(unsigned int cpu, memory_info access, uint64_t address, void *data)
{
    (void)cpu;
    (void)data;
    uint64_t first = address >> LINE_SHIFT, last = first;
    if (address % LINE > LINE - ACCESS_MAX)
        last = (address + (1u << qemu_plugin_mem_size_shift(access)) - 1) >> LINE_SHIFT;
    if (first != recent)
        touch(first);
    if (last != first)
        touch(last);
}

/* Code as QEMU translates it. */

static struct cell *cell_of(uint64_t address, uint32_t instructions)
{
    uint64_t mask = CELLS_MAX * 2 - 1;
    for (uint64_t at = mixed(address ^ (uint64_t)instructions << 48) & mask;; at = (at + 1) & mask) {
        if (cell_table[at] == 0) {
            if (cells_used == CELLS_MAX) {
                file->lost++;
                return NULL;
            }
            struct cell *cell = &cells[cells_used++];
            cell->address = address;
            cell->instructions = instructions;
            cell_table[at] = cells_used;
            file->cells = cells_used;
            return cell;
        }
        struct cell *cell = &cells[cell_table[at] - 1];
        if (cell->address == address && cell->instructions == instructions)
            return cell;
    }
}

static size_t bytes_of(const struct qemu_plugin_insn *insn, uint8_t *bytes, size_t most)
{
    size_t size = qemu_plugin_insn_size(insn);
    size = size < most ? size : most;
    if (interface >= 3)
        return data_into(insn, bytes, size);
    memcpy(bytes, data_of(insn), size);
    return size;
}

/* The kinds that matter here (Intel's manual, volume 2): E8 and FF /2 call, C3 returns, F3 before A4 and A5 copies. */
static void watch(struct qemu_plugin_insn *insn, struct cell *cell, int copies)
{
    uint8_t code[15] = {0};
    size_t size = bytes_of(insn, code, sizeof code), at = 0;
    int repeats = 0;
    while (at < size && (code[at] == 0xf3 || code[at] == 0xf2 || code[at] == 0x66 || code[at] == 0x2e || code[at] == 0x3e ||
                         (code[at] & 0xf0) == 0x40))
        repeats |= code[at++] == 0xf3;
    uint8_t operation = at < size ? code[at] : 0, modrm = at + 1 < size ? code[at + 1] : 0;
    if (operation == 0xe8 || (operation == 0xff && (modrm >> 3 & 7) == 2))
        qemu_plugin_register_vcpu_mem_cb(insn, called, 0, WRITES, cell);
    else if ((repeats && (operation == 0xa4 || operation == 0xa5)) || (copies && operation != 0xc3))
        qemu_plugin_register_vcpu_mem_cb(insn, copied, 0, READS, cell);
}

/* Of most programs only pages are told apart: each time that one starts it has other addresses. */
static uint64_t place_of(uint64_t address)
{
    if (address >= KERNEL || (epoch && file->function[function_at(address)].kinds & TOLD_APART))
        return address;
    return address & PAGE;
}

static void translated(plugin_id id, struct qemu_plugin_tb *block)
{
    (void)id;
    size_t instructions = qemu_plugin_tb_n_insns(block);
    struct cell *cell = cell_of(place_of(qemu_plugin_tb_vaddr(block)), instructions);
    if (cell == NULL)
        return;
    int copies = cell->address >= KERNEL && epoch && file->function[function_of(cell)].kinds & COPIES;
    cell->bytes = 0;
    qemu_plugin_register_vcpu_tb_exec_cb(block, executed, 0, cell);
    for (size_t at = 0; at < instructions; at++) {
        struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(block, at);
        cell->bytes += qemu_plugin_insn_size(insn);
        if (cell->address >= KERNEL)
            watch(insn, cell, copies);
        if (lines_counted)
            qemu_plugin_register_vcpu_mem_cb(insn, touched, 0, READS | WRITES, NULL);
    }
}

EXPORT int qemu_plugin_install(plugin_id id, const info *about, int argc, char **argv)
{
    if (argc < 1 || argc > 2 || strncmp(argv[0], "out=", 4) != 0 || (argc == 2 && strcmp(argv[1], "lines=on") != 0)) {
        fprintf(stderr, "iotax's plugin takes out=FILE[,lines=on]\n");
        return -1;
    }
    interface = about->version.cur;
    self = id;
    lines_wanted = argc == 2;
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
