/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* What the congestion controls in emulated seconds share: the kernel's types, its helpers, and what is asked of them.
 *
 * Built with NAME, what the kernel is to call them, by slowed_tcp.py.
 */
typedef unsigned char u8;
typedef unsigned int u32;
typedef int s32;
typedef unsigned long long u64;

#define SECTION(name) __attribute__((section(name), used))
/* Offsets are those of the running kernel. */
#define OF_KERNEL __attribute__((preserve_access_index))
#define KERNEL_S extern __attribute__((section(".ksyms")))

struct sock {
	unsigned long sk_max_pacing_rate;
} OF_KERNEL;
struct rate_sample {
	int unused;
} OF_KERNEL;
struct inet_connection_sock {
	u64 icsk_ca_priv[13];
} OF_KERNEL;
struct ack_sample {
	u32 pkts_acked;
	s32 rtt_us;
	u32 in_flight;
};
enum tcp_ca_event { UNUSED };
struct tcp_congestion_ops {
	u32 (*ssthresh)(struct sock *);
	void (*cong_avoid)(struct sock *, u32, u32);
	void (*set_state)(struct sock *, u8);
	void (*cwnd_event)(struct sock *, enum tcp_ca_event);
	void (*pkts_acked)(struct sock *, const struct ack_sample *);
	u32 (*min_tso_segs)(struct sock *);
	void (*cong_control)(struct sock *, u32, int, const struct rate_sample *);
	u32 (*undo_cwnd)(struct sock *);
	u32 (*sndbuf_expand)(struct sock *);
	void (*init)(struct sock *);
	char name[16];
};

/* By their numbers in linux/bpf.h, so that clang needs no headers. */
static u64 (*const ktime_get_ns)(void) = (void *)5;
static long (*const setsockopt)(void *sk, int level, int name, void *value, int size) = (void *)49;
static void *(*const sk_storage_get)(void *map, void *sk, void *value, u64 flags) = (void *)107;
static u64 (*const jiffies64)(void) = (void *)118;
#define CREATE 1 /* BPF_SK_STORAGE_GET_F_CREATE */

struct {
	u32 k_thousandths; /* set from outside, whenever the dilation changes */
	u32 cap_byte_s;    /* of a connection's payload; all ones: none */
} asked SECTION(".data") = {1000, ~0u};

#define SOL_SOCKET 1
#define SO_MAX_PACING_RATE 47

/* Keep the connection's rate below the cap, which may have changed. */
static inline __attribute__((always_inline)) void pace(struct sock *sk)
{
	u32 cap = asked.cap_byte_s;

	if (cap != ~0u && sk->sk_max_pacing_rate != cap)
		setsockopt(sk, SOL_SOCKET, SO_MAX_PACING_RATE, &cap, sizeof(cap));
}

/* The kernel's congestion controls may be called by code under the GPL alone, or under it too. */
char _license[] SECTION("license") = "Dual MIT/GPL";
