/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* BBR whose seconds are emulated ones.
 *
 * The kernel's BBR counts round trips but for two times of the wall: if a connection has seen no shorter round trip for ten
 * seconds, it nearly stops for 200 ms to measure one (Cardwell et al., "BBR: Congestion-Based Congestion Control", ACM
 * Queue 14(5), 2016). This is that BBR with both times K times as long. All else is the kernel's: each function calls its own.
 */
#include "slowed.h"

struct bbr {
	u32 min_rtt_stamp;        /* jiffies of when the least round trip was seen */
	u32 probe_rtt_done_stamp; /* jiffies of when the pause may end; 0 until all but four packets have arrived */
} OF_KERNEL;
KERNEL_S void bbr_init(struct sock *);
KERNEL_S void bbr_main(struct sock *, u32, int, const struct rate_sample *);
KERNEL_S u32 bbr_sndbuf_expand(struct sock *);
KERNEL_S u32 bbr_undo_cwnd(struct sock *);
KERNEL_S void bbr_cwnd_event(struct sock *, enum tcp_ca_event);
KERNEL_S u32 bbr_ssthresh(struct sock *);
KERNEL_S u32 bbr_min_tso_segs(struct sock *);
KERNEL_S void bbr_set_state(struct sock *, u8);

struct clock {
	u64 seen_ns; /* when BBR itself last saw the least round trip */
	u32 stamp;   /* what it was told of that */
	u32 done;    /* end of the last pause, stretched */
};
struct {
	int (*type)[24];     /* BPF_MAP_TYPE_SK_STORAGE */
	int (*map_flags)[1]; /* BPF_F_NO_PREALLOC */
	int *key;
	struct clock *value;
} clocks SECTION(".maps");

#define WINDOW_NS 10000000000ull
#define LONG_AGO (1u << 30) /* jiffies */

SECTION("struct_ops") void init(u64 *args)
{
	bbr_init((void *)args[0]);
	pace((void *)args[0]);
}
SECTION("struct_ops") u32 ssthresh(u64 *args) { return bbr_ssthresh((void *)args[0]); }
SECTION("struct_ops") u32 undo_cwnd(u64 *args) { return bbr_undo_cwnd((void *)args[0]); }
SECTION("struct_ops") u32 sndbuf_expand(u64 *args) { return bbr_sndbuf_expand((void *)args[0]); }
SECTION("struct_ops") u32 min_tso_segs(u64 *args) { return bbr_min_tso_segs((void *)args[0]); }
SECTION("struct_ops") void set_state(u64 *args) { bbr_set_state((void *)args[0], args[1]); }
SECTION("struct_ops") void cwnd_event(u64 *args) { bbr_cwnd_event((void *)args[0], args[1]); }

SECTION("struct_ops") void cong_control(u64 *args)
{
	struct sock *sk = (void *)args[0];
	struct bbr *bbr = (void *)((struct inet_connection_sock *)sk)->icsk_ca_priv;
	struct clock *clock = sk_storage_get(&clocks, sk, 0, CREATE);
	u64 now_ns = ktime_get_ns();
	u32 now = jiffies64();

	pace(sk);
	if (clock) {
		if (bbr->min_rtt_stamp != clock->stamp)
			clock->seen_ns = now_ns;
		/* never `now`, which is what BBR writes where it saw it anew */
		clock->stamp = (now_ns - clock->seen_ns) / asked.k_thousandths * 1000 > WINDOW_NS ? now - LONG_AGO : now - 1;
		bbr->min_rtt_stamp = clock->stamp;
	}
	bbr_main(sk, args[1], args[2], (void *)args[3]);
	if (!clock)
		return;
	if (bbr->min_rtt_stamp != clock->stamp) {
		clock->stamp = bbr->min_rtt_stamp;
		clock->seen_ns = now_ns;
	}
	u32 done = bbr->probe_rtt_done_stamp;
	if (done && done != clock->done) {
		done = now + (u64)(done - now) * asked.k_thousandths / 1000;
		bbr->probe_rtt_done_stamp = done;
	}
	clock->done = done;
}

SECTION(".struct_ops") struct tcp_congestion_ops slowed = {
	.init = (void *)init,
	.ssthresh = (void *)ssthresh,
	.undo_cwnd = (void *)undo_cwnd,
	.sndbuf_expand = (void *)sndbuf_expand,
	.min_tso_segs = (void *)min_tso_segs,
	.set_state = (void *)set_state,
	.cwnd_event = (void *)cwnd_event,
	.cong_control = (void *)cong_control,
	.name = NAME,
};
