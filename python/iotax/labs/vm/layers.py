"""Which layer of the system a function belongs to: by its module, else by its name in the kernel's own image.

A distribution's kernel tells neither files nor lines of its functions, but Linux names functions by their subsystem.
The first row that fits a name decides. What fits none is `UNNAMED`; a test with real kernels holds that below 5 %.
"""

from __future__ import annotations

import functools
import re

LOAD = "load generator"
TARGET_PROGRAM = "target program"
VIRTUAL_DISK = "virtual disk"
LAB = "lab"
UNNAMED = "unnamed"
_SYSCALLS = "system calls, io_uring"
_VFS = "VFS, page cache"
_FILES = "file systems"
_BLOCK = "block layer"
_SCSI, _NVME, _NFS = "SCSI", "NVMe", "NFS, RPC"
_TRANSPORT = "transport"
_SCSI_TARGET, _NVME_TARGET, _NFS_SERVER = "SCSI target", "NVMe target", "NFS server"
_TCP, _NET = "TCP/IP", "network core, softirq"
COPIES = "copies"
_CHECKSUMS, _ENCRYPTION = "checksums, crypto", "encryption"
_SCHEDULER, _INTERRUPTS = "scheduling, wake-ups", "interrupts, timers"
_LOCKS, _MEMORY = "locks, RCU", "memory management"
_DATA = "data structures"

LAYERS = (
    *(LOAD, _SYSCALLS, _VFS, _FILES, _BLOCK, _SCSI, _NVME, _NFS, _TRANSPORT),
    *(_TCP, _NET, _SCSI_TARGET, _NVME_TARGET, _NFS_SERVER, TARGET_PROGRAM, VIRTUAL_DISK),
    *(COPIES, _CHECKSUMS, _ENCRYPTION, _SCHEDULER, _INTERRUPTS, _LOCKS, _DATA, _MEMORY, LAB, UNNAMED),
)
"""In the order of an I/O's path, then those that all of them use."""

_MODULES: tuple[tuple[str, str], ...] = (
    (r"nvmet(_\w+)?|nvme_fcloop", _NVME_TARGET),
    (r"target_core_\w+|iscsi_target_mod|ib_isert|tcm_\w+", _SCSI_TARGET),
    (r"nfsd|exportfs", _NFS_SERVER),
    (r"nvme_(tcp|rdma|fc)", _TRANSPORT),
    (r"nvme\w*", _NVME),
    (r"(lib)?iscsi(_tcp)?|scsi_transport_(iscsi|fc)|ib_iser|lib_?fc(oe)?|fcoe", _TRANSPORT),
    (r"rdma_\w+|ib_\w+|iw_cm|siw", _TRANSPORT),
    (r"sd_mod|scsi_\w+|sg|dm_multipath|dm_round_robin|dm_queue_length", _SCSI),
    (r"nfs\w*|sunrpc|lockd|auth_rpcgss|grace|fscache|netfs", _NFS),
    (r"virtio_net|net_failover|failover|veth|8021q|sch_\w+|udp_tunnel|ip6_udp_tunnel", _NET),
    (
        r"esp4\w*|xfrm\w*|wireguard|seqiv|gcm|ctr|(lib)?(chacha|poly1305|curve25519)\w*|\w*aes\w*|ghash\w*|cryptd|crypto_simd|tls|rpcsec_gss_krb5|cts|cbc|ccm",
        _ENCRYPTION,
    ),
    (r"crc\w+|crct10dif\w*|\w*crypto\w*|libcrc32c|sha\w+|gf128mul", _CHECKSUMS),
    (r"virtio_console", LAB),
    (r"virtio\w*|vduse|vdpa", _BLOCK),
    (r"dm_\w+|loop", _BLOCK),
    (r"ext4|jbd2|mbcache|fuse|configfs", _FILES),
    (r"ipv6|nf_\w+", _TCP),
)

_NAMES: tuple[tuple[str, str], ...] = (
    # Names that a later row would give to another layer.
    (
        r"clear_page\w*|PageH\w+|policy_node\w*|cgroup_rstat\w*|count_memcg\w*|cache_from_obj|is_vmalloc\w*|switch_mm\w*|"
        r"handle_mm\w*|lru_add_drain\w*",
        _MEMORY,
    ),
    (
        r"(__)?queue_(delayed_)?work\w*|mod_delayed_work\w*|cancel_work\w*|try_to_grab_pending|prepare_to_wait\w*|record_times|"
        r"check_(spread|cfs)\w*|hrtick\w*|(un)?throttle\w*|list_(add|del)_leaf\w*",
        _SCHEDULER,
    ),
    (
        r"fast_mix|getboottime\w*|get_timespec\w*|detach_if_pending|remove_hrtimer|(de|en)queue_timer|irq_fpu\w*",
        _INTERRUPTS,
    ),
    (r"lock_sock\w*|release_sock|netdev\w*|copy_skb_header|(aa|apparmor|selinux|tomoyo|security)_(sk|sock)\w*", _NET),
    (r"do_tcp\w*|\w*_ip_postroute", _TCP),
    (r"x64_sys_call|rseq\w*|\w*gsbase\w*|amd_clear\w*", _SYSCALLS),
    (r"get_task_ioprio|add_disk_random\w*", _BLOCK),
    (r"map_id\w*|tomoyo\w*", _VFS),
    (r"rb_\w+|kfifo\w*|list_(add|del)\w*", _DATA),
    (r"strscpy\w*|iovec_from_user|import_single_range|sgl_free\w*", COPIES),
    # Shared code comes first: a name such as `skb_copy_datagram_iter` belongs to the network, but the copy that it
    # calls does not.
    (
        r"_?copy_(to|from)_(user|iter|kernel)\w*|copy_user_\w+|memcpy\w*|memmove|memset\w*|memcmp|clear_user\w*|"
        r"_copy_(mc_)?(to|from)_\w+|copy_page(_to_iter|_from_iter)?\w*|copyin|copyout\w*|rep_movs\w*|rep_stos\w*|"
        r"iov_iter_\w+|iterate_\w+|memcpy_(to|from)\w+|copy_mc_\w+|import_\w*iovec\w*|want_pages_array|"
        r"sg_(copy|miter|next|init|alloc|free|chain|pcopy)\w*|sgl?_\w*alloc\w*|bvec_\w+|csum_and_copy\w*|strn?(cpy|cmp|len)\w*",
        COPIES,
    ),
    (
        r"xfrm\w*|policy_hash\w*|decode_session\w*|esp_\w+|scatterwalk\w*|skcipher\w*|crypto_(aead|skcipher)\w*|aead_\w+|chacha\w*|"
        r"kernel_fpu\w*|security_xfrm\w*|simd_\w+|tls_\w+|handshake_\w+",
        _ENCRYPTION,
    ),
    (
        r"csum_\w+|do_csum|ip_fast_csum|crc\w+|crypto_\w+|chksum_\w+|sha\d+\w*|\w*crc(32|t10)\w*|shash_\w+|blake2s\w*",
        _CHECKSUMS,
    ),
    (
        r"\w*spin_(lock|unlock|trylock)\w*|\w*raw_(read|write)_\w*lock\w*|\w*(mutex|rwsem|rt_mutex)_\w+|rwsem_\w+|down(_\w+)?|"
        r"up(_\w+)?|(read|write)_(un)?lock\w*|queued_\w+|native_queued_\w+|rcu_\w+|call_rcu\w*|kvfree_call_rcu|srcu_\w+|percpu_ref_\w+|"
        r"percpu_(up|down)_\w+|lock_sock\w*|release_sock|refcount_\w+|kref_\w+|lockref_\w+|synchronize_\w+|invoke_rcu\w*|note_gp\w*|"
        r"\w*_rcu_(read|sched|qs)\w*|dec_and_lock\w*|atomic_dec_and_\w+|"
        r"preempt_(count|schedule)\w*|local_bh_\w+|local_(un)?lock\w*|lockdep\w*|osq_\w+",
        _LOCKS,
    ),
    (
        r"tcp\w*|ip_\w+|ip4_\w+|ipv4_\w+|inet\w*|udp\w*|__?ip_\w+|icmp\w*|fib_\w+|rt_\w+dst\w*|ip6_\w+|ipv6\w*|bictcp\w*|cubictcp\w*|rtt\w*|"
        r"raw_local\w*|nf_\w+|arp_\w+|neigh_\w+|dst_\w+|bpf_skops\w*|mptcp\w*|rt_cache\w*|fq_\w+|minmax_\w+",
        _TCP,
    ),
    (
        r"skb\w*|sk_\w+|sock\w*|net_\w+|netif\w*|napi\w*|dev_\w+|validate_xmit\w*|process_backlog|kernel_(send|recv)\w*|"
        r"enqueue_to_backlog|loopback\w*|eth_\w+|consume_skb|kfree_skb\w*|alloc_skb\w*|build_skb\w*|pskb_\w+|do_softirq\w*|"
        r"\w*softirq\w*|irq_exit\w*|irq_enter\w*|tasklet\w*|qdisc\w*|pfifo\w*|sch_\w+|datagram\w*|zerocopy\w*|page_pool\w*|dql_\w+|"
        r"gro_\w+|gso_\w+|packet_\w+|xdp\w*|bpf_\w+|cgroup_bpf\w*|sys_(send|recv)\w*|move_addr\w*|security_sock\w*|"
        r"__?(sys_)?(send|recv)(msg|to|from)\w*|sendmsg\w*|recvmsg\w*|flow_\w+|get_rps\w*|rps\w*|dequeue_skb|try_bulk\w*|xmit\w*|"
        r"deliver_\w*skb|ptype\w*|reuseport\w*|wait_woken|woken_\w+|kmalloc_reserve|csum_\w+|ethtool\w*|br_\w+|passthru\w*|"
        r"selinux_(sock|ip|netlbl|peer)\w*|apparmor_sock\w*|aa_(sk|sock)_\w*|cipso\w*|netlbl\w*",
        _NET,
    ),
    (
        r"blk\w*|bio\w*|bdev\w*|blkdev\w*|submit_bio\w*|elv_\w+|dd_\w+|deadline\w*|mq_\w+|sbitmap\w*|"
        r"disk_\w+|part_\w+|block\w*_(rq|bio)\w*|ll_\w+|rq_\w+|wbt_\w+|rwb\w*|iocg\w*|ioc_\w+|kyber\w*|bfq\w*|flush_end\w*|dm_\w+|"
        r"attempt_merge\w*|update_io_ticks|queue_\w+|__queue_\w*|guard_bio\w*|plug_\w+|req_\w*|should_fail\w*|t10_pi\w*|dma_\w*map\w*|"
        r"dma_direct\w*|swiotlb\w*|badblocks\w*|badrange\w*|virtblk\w*|vring\w*|vp_\w+|virtqueue\w*|virtio\w*|mempool\w*|get_max_\w*segm\w*",
        _BLOCK,
    ),
    (r"scsi\w*|sd_\w+|scmd_\w+", _SCSI),
    (r"nvme\w*", _NVME),
    (r"nfs\w*|rpc\w*|xprt\w*|xdr\w*|svc\w*|nlm\w*", _NFS),
    (
        r"io_\w+|__?(x64|ia32)?_?sys_\w+|__x64_\w+|__se_\w+|__do_sys\w*|do_syscall\w*|entry_SYSCALL\w*|syscall\w*|ksys_\w+|"
        r"aio\w*|req_\w*|exit_to_user\w*|fpregs\w*|fput\w*|fget\w*|fdget\w*|lookup_ioctx|put_reqs\w*|hash_name|audit_\w+|"
        r"entry_\w+|srso_\w+|kiocb\w*|iou_\w+|switch_fpu\w*|do_(sys|epoll|p?poll|select)\w*|ep_\w+|epoll\w*|eventfd\w*|"
        r"poll_\w+|futex\w*|get_futex\w*|seccomp\w*|restore_fpregs\w*|signal_\w+|get_signal|task_work\w*|swapgs\w*|"
        r"swap\w*regs\w*|error_(entry|return)|ret_from_\w+|restore_regs\w*|retbleed\w*|zen_\w+|sync_regs|fixup_bad\w*",
        _SYSCALLS,
    ),
    (
        r"try_to_wake_up|wake\w*|ttwu\w*|\w*schedule\w*|sched\w*|\w*_fair|pick_\w+|put_prev\w*|set_next\w*|update_(curr|rq|load|cfs|se|"
        r"min)\w*|enqueue\w*|dequeue\w*|select_task\w*|context_switch|finish_task\w*|switch_to\w*|__?switch_to\w*|resched\w*|"
        r"activate_task|deactivate_task|check_preempt\w*|place_entity|reweight\w*|(add|remove|prepare|finish|init)_wait\w*|autoremove\w*|"
        r"complete\w*|wait_for\w*|do_wait\w*|swake\w*|default_wake\w*|kthread\w*|worker\w*|work\w*|process_(one_|scheduled_)?work\w*|"
        r"queue_(delayed_)?work\w*|insert_work\w*|wq_\w+|pwq_\w+|flush_work\w*|delayed_work\w*|kick_pool|move_linked\w*|"
        r"set_work\w*|get_work\w*|find_worker\w*|idle\w*|do_idle|cpuidle\w*|menu_\w+|cpu_startup\w*|default_idle\w*|nohz\w*|"
        r"io_schedule\w*|psi_\w+|cpuacct\w*|account_\w+|cgroup_account\w*|runtime\w*|bit_wait\w*|calc_\w*|pelt\w*|"
        r"\w*_(load_avg|entity)\w*|yield\w*|attach_\w*task\w*|newidle\w*|rebalance\w*|cpu_(util|load)\w*|can_migrate\w*|migrate\w*|"
        r"set_task\w*|stop_\w*task\w*|cond_resched|dl_\w+|rt_\w+|perf_\w+|vruntime\w*|avg_vruntime|(pull|push)_\w*task\w*|"
        r"native_load_(sp0|tls)|rb_\w+|__rb_\w+|cputime\w*|vtime\w*|cpupri\w*|task_\w+|acct_\w+|arch_cpu_idle\w*|x86_idle|"
        r"mwait_idle|hlt\w*|pv_native_safe_halt|native_(safe_)?halt|haltpoll\w*|"
        r"save_fpregs\w*|os_xsave|__?put_task\w*|get_nohz\w*|prandom\w*|prb_\w+|delay\w*|nr_iowait\w*|"
        r"wait_\w+|__wait_\w+|clear_buddies|sugov\w*|arch_scale\w*|get_cpu_iowait\w*|init_wait\w*",
        _SCHEDULER,
    ),
    (
        r"\w*irq\w*|asm_\w+|sysvec\w*|common_interrupt|handle_\w+|apic\w*|x2apic\w*|lapic\w*|native_(apic|read_msr|write_msr)\w*|ktime\w*|"
        r"hrtimer\w*|tick\w*|timer\w*|run_timer\w*|(mod|add|del|try_to_del|call)_timer\w*|\w*_timer(s|_\w+)?|clockevents\w*|"
        r"read_tsc|native_sched_clock|sched_clock\w*|update_wall\w*|timekeeping\w*|timerqueue\w*|get_next_timer\w*|next_\w*timer\w*|"
        r"pvclock\w*|vclock\w*|rtc_\w+|tsc_\w+|local_clock\w*|update_(process_times|fast_timekeeper|vsyscall)\w*|ntp_\w+|second_overflow|"
        r"note_interrupt|add_interrupt\w*|mix_interrupt\w*|msi_\w+|ack_\w+|unmask\w*|mask_\w+|ipi_\w+|smp_call\w*|"
        r"generic_smp\w*|flush_smp\w*|llist\w*|jiffies\w*|lru_add_drain_cpu_zone|expire_\w+|enqueue_hrtimer|vector_\w+|"
        r"(get|delta)_\w*jiffies\w*|collect_expired\w*|fetch_next\w*|profile_tick|run_posix\w*|posix_\w+|"
        r"msecs_to\w*|nsecs_to\w*|usecs_to\w*|round_jiffies\w*|getnstimeofday\w*|rcu_irq\w*|ct_(nmi|irq)\w*|ct_\w+|nmi_\w+|paravirt\w*|exc_\w+|"
        r"clocksource\w*|cyc2ns\w*|ns_to\w*|timespec\w*|set_normalized\w*|process_timeout|detach_\w*timer\w*",
        _INTERRUPTS,
    ),
    (
        r"kmem\w*|k[mzv]?alloc\w*|kmalloc\w*|kfree\w*|kvfree\w*|kvmalloc\w*|slab\w*|\w*slub\w*|alloc_(page|pages|frag)\w*|free_\w*page\w*|\w*_frag\w*|"
        r"get_page_from\w*|get_user_pages\w*|gup_\w+|(un)?pin_user\w*|\w*pin_user_pages\w*|internal_get_user\w*|put_page\w*|rmqueue\w*|"
        r"folio\w*|lru_\w+|mem_cgroup\w*|charge_\w*|memcg\w*|obj_cgroup\w*|try_charge\w*|get_obj_cgroup\w*|page_\w+|"
        r"vm_\w+|vma_\w+|mmap\w*|mm_\w+|find_vma\w*|mas_\w+|mt_\w+|mtree\w*|follow_\w+|handle_mm\w*|do_(user_addr|anonymous|fault|"
        r"wp|mmap|munmap)\w*|\w*fault\w*|pte_\w+|pmd_\w+|pgd_\w+|p4d_\w+|pud_\w+|flush_tlb\w*|tlb_\w+|native_flush\w*|zap_\w+|unmap_\w+|unpoison\w*|"
        r"discard_slab|new_slab\w*|allocate_slab|deactivate_slab|get_partial\w*|put_cpu_partial|unfreeze\w*|setup_object\w*|"
        r"__?zone_\w+|zone_\w+|prep_\w+|free_(one|unref|pcp|large|tail|compound)\w*|(get|put|mod)_(node|zone|lruvec|memcg)\w*|"
        r"mod_\w*state\w*|__mod_\w+|inc_\w*state\w*|dec_\w*state\w*|percpu_counter\w*|pcpu_\w+|free_percpu\w*|cmpxchg\w*|"
        r"this_cpu\w*|compaction\w*|vmalloc\w*|vfree\w*|should_fail_alloc|post_alloc\w*|split_page|release_pages|"
        r"switch_mm\w*|load_new_mm\w*|enter_lazy\w*|try_get_folio|try_grab\w*|undo_dev\w*|mark_page\w*|find_extend_vma|"
        r"check_(heap|stack|bogus|object)\w*|usercopy\w*|check_zeroed\w*|virt_addr_valid|phys_addr_valid|radix\w*|swap\w*|"
        r"drain_\w+|expand_\w+|list_lru\w*|shrink\w*|memdup\w*|kstrdup\w*|unlock_page\w*|lock_page\w*",
        _MEMORY,
    ),
    (
        r"shmem\w*|ext4\w*|tmpfs\w*|simple_\w+|ramfs\w*|kernfs\w*|proc_\w+|seq_\w+|show_stat|sysfs\w*|configfs\w*|uptime\w*|devtmpfs\w*|exportfs\w*|"
        r"get_idle_time|get_iowait\w*|num_to_str|put_dec\w*|number|vsnprintf|format_\w*|stat_open|single_\w+|fsnotify\w*",
        _FILES,
    ),
    (
        r"vfs_\w+|generic_\w+|filemap\w*|file_\w+|do_iter\w*|do_(readv|writev|pread|pwrite|loop_readv|sync_\w+)\w*|rw_verify\w*|xa_\w+|xas_\w+|"
        r"find_get\w*|pagecache\w*|balance_dirty\w*|mark_inode\w*|touch_atime|atime\w*|current_time|iomap\w*|"
        r"inode\w*|dentry\w*|d_\w+|dget\w*|dput\w*|lookup\w*|path_\w+|link_path\w*|filename\w*|getname\w*|mnt_\w+|mntput\w*|security_\w+|selinux\w*|"
        r"apparmor\w*|aa_\w+|common_file_perm|avc_\w+|bpf_lsm\w*|fs_\w+|setattr\w*|notify_\w+|file\w*|sb_\w+|super_\w+|"
        r"write_(begin|end|iter|cache)\w*|end_page\w*|wait_on_page\w*|truncate\w*|invalidate\w*|direct_\w+|dio_\w+|ima_\w+|evm_\w+|"
        r"dir_\w+|open_\w+|do_(open|dentry|filp|writepages|fsync)\w*|filp_\w+|alloc_(empty_)?file\w*|may_\w+|iput|ihold|igrab|"
        r"legitimize\w*|step_into|terminate_walk|complete_walk|walk_component|nd_\w+|try_to_unlazy\w*|pipe_\w+|splice\w*|"
        r"posix_acl\w*|cap_\w+|ns_capable\w*|capable\w*|(get|put|override|revert|prepare|commit|abort)_creds?\w*|put_cred\w*|file_update\w*|"
        r"need_file\w*|tag_pages\w*|wbc_\w+|writeback\w*|sync_\w+|dirty_\w+|noop_\w+|kill_fasync|redirty\w*|"
        r"errseq\w*|wb_\w+|filldir\w*|permission\w*|make_vfs\w*|from_k\w*id\w*|make_k\w*id\w*|groups_\w+|in_group\w*|idmap\w*|fcntl\w*|flock\w*|locks_\w+|"
        r"set_page_dirty|submit_bh\w*|buffer_\w+|mpage\w*|read_pages|readahead\w*|page_cache\w*|force_page\w*|ondemand\w*",
        _VFS,
    ),
    (r"hvc_\w+|tty\w*|n_tty\w*|serial\w*|uart\w*|console\w*|printk\w*|vprintk\w*|ldsem\w*", LAB),
    (
        r"(find|set|clear|test)_\w*bit\w*|find_next\w*|hweight\w*|idr_\w+|ida_\w+|rhash\w*|rht_\w+|jhash\w*|siphash\w*|kset\w*|get_random\w*|"
        r"list_\w+|x86_indirect\w*|x86_return\w*|__fentry__|ftrace\w*|static_call\w*|SCT_\w+|hash_\w+|fortify\w*|bsearch|sort\w*|"
        r"\w*retpoline\w*|kobject\w*|lib_\w+|klist\w*|div\w*|int_sqrt\w*|gcd|bitmap\w*|cpumask\w*|warn_\w+|unwind\w*|stack_\w+|random\w*|crng\w*|extract\w*entropy\w*",
        _DATA,
    ),
)


def layer_of(name: str, module: str = "") -> str:
    """The layer of a function; `module` is empty for the kernel's own image."""
    if module:
        return _of_module(module)
    return _of_name(name.lstrip("_")) or _of_name(name) or UNNAMED


@functools.cache
def _of_module(module: str) -> str:
    return next((layer for pattern, layer in _MODULES if re.fullmatch(pattern, module)), UNNAMED)


@functools.cache
def _of_name(name: str) -> str | None:
    return next((layer for pattern, layer in _NAMES if re.fullmatch(pattern, name)), None)
