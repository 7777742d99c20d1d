/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* CUBIC whose seconds are emulated ones.
 *
 * CUBIC's window grows by the cube of the seconds since it last shrank, and slow start ends by a few milliseconds of its own
 * (Ha, Rhee, Xu, "CUBIC: a new TCP-friendly high-speed TCP variant", ACM SIGOPS OSR 42(5), 2008; HyStart: Computer Networks
 * 55(9), 2011). This is the kernel's CUBIC, told times that are K times shorter: round trips as they are seen, and how long ago
 * things began for as long as one of its functions runs. All else is the kernel's: each function calls its own.
 */
#include "slowed.h"

struct bictcp {
	u32 epoch_start; /* jiffies of when this growth began; 0: not yet */
	u32 round_start; /* microseconds of when this round trip began, in slow start */
	u32 last_ack;    /* of when its last acknowledgement came that followed close on another */
} OF_KERNEL;
struct tcp_sock {
	u64 tcp_mstamp;
} OF_KERNEL;

KERNEL_S void cubictcp_init(struct sock *);
KERNEL_S u32 cubictcp_recalc_ssthresh(struct sock *);
KERNEL_S void cubictcp_cong_avoid(struct sock *, u32, u32);
KERNEL_S void cubictcp_state(struct sock *, u8);
KERNEL_S void cubictcp_cwnd_event(struct sock *, enum tcp_ca_event);
KERNEL_S void cubictcp_acked(struct sock *, const struct ack_sample *);
KERNEL_S u32 tcp_reno_undo_cwnd(struct sock *);

/* One of CUBIC's times: what it is, and what CUBIC is told meanwhile. */
struct moment {
	u32 is, told;
};

static inline __attribute__((always_inline)) struct moment nearer(u32 at, u32 now)
{
	struct moment moment = {at, now - (u32)((u64)(now - at) * 1000 / asked.k_thousandths)};

	return moment;
}

/* What CUBIC itself has written since is a time of now. */
static inline __attribute__((always_inline)) u32 restored(struct moment moment, u32 found)
{
	return found == moment.told ? moment.is : found;
}

SECTION("struct_ops") void init(u64 *args)
{
	cubictcp_init((void *)args[0]);
	pace((void *)args[0]);
}
SECTION("struct_ops") u32 ssthresh(u64 *args) { return cubictcp_recalc_ssthresh((void *)args[0]); }
SECTION("struct_ops") u32 undo_cwnd(u64 *args) { return tcp_reno_undo_cwnd((void *)args[0]); }
SECTION("struct_ops") void set_state(u64 *args) { cubictcp_state((void *)args[0], args[1]); }
SECTION("struct_ops") void cwnd_event(u64 *args) { cubictcp_cwnd_event((void *)args[0], args[1]); }

SECTION("struct_ops") void cong_avoid(u64 *args)
{
	struct sock *sk = (void *)args[0];
	struct bictcp *cubic = (void *)((struct inet_connection_sock *)sk)->icsk_ca_priv;
	struct moment epoch = nearer(cubic->epoch_start, jiffies64());

	if (epoch.is)
		cubic->epoch_start = epoch.told;
	cubictcp_cong_avoid(sk, args[1], args[2]);
	if (epoch.is)
		cubic->epoch_start = restored(epoch, cubic->epoch_start);
	pace(sk);
}

SECTION("struct_ops") void pkts_acked(u64 *args)
{
	struct sock *sk = (void *)args[0];
	const struct ack_sample *seen = (void *)args[1];
	struct bictcp *cubic = (void *)((struct inet_connection_sock *)sk)->icsk_ca_priv;
	u32 now_us = ((struct tcp_sock *)sk)->tcp_mstamp;
	struct moment epoch = nearer(cubic->epoch_start, jiffies64());
	struct moment round = nearer(cubic->round_start, now_us), last = nearer(cubic->last_ack, now_us);
	s32 rtt_us = seen->rtt_us;
	struct ack_sample told = {seen->pkts_acked, rtt_us, seen->in_flight};

	if (rtt_us > 0)
		told.rtt_us = (u64)rtt_us * 1000 / asked.k_thousandths;
	if (epoch.is)
		cubic->epoch_start = epoch.told;
	cubic->round_start = round.told;
	cubic->last_ack = last.told;
	cubictcp_acked(sk, &told);
	if (epoch.is)
		cubic->epoch_start = restored(epoch, cubic->epoch_start);
	cubic->round_start = restored(round, cubic->round_start);
	cubic->last_ack = restored(last, cubic->last_ack);
}

SECTION(".struct_ops") struct tcp_congestion_ops slowed = {
	.init = (void *)init,
	.ssthresh = (void *)ssthresh,
	.cong_avoid = (void *)cong_avoid,
	.undo_cwnd = (void *)undo_cwnd,
	.set_state = (void *)set_state,
	.cwnd_event = (void *)cwnd_event,
	.pkts_acked = (void *)pkts_acked,
	.name = NAME,
};
