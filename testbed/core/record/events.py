"""The rows a run writes: `events.jsonl` line by line, `summary.json` at the end.

Every event has `t_s`, emulated seconds since step 1 began, negative before it, and `event`:

    schedule           what, detail     a stage of the run: "network", "measured", "workers", "busy", "go", "cluster",
                       "kept" (the model, with checkpoint=last), "end"
    start              rank, late_s    step 1 begins on this rank; `late_s`: after the agreed moment
    step               rank, step, loss, step_s, phase_s{PHASES}, payload_bytes, samples, cpu_s, late_s, queued_s
                       `cpu_s`: CPU seconds of the training thread; `late_s`: how much later than the emulated device
                       the rank sent, null where no device paces it; `queued_s`: waits of its messages for a core;
                       `loss` is null where the workload has none
    payload            rank, payload_bytes, elements  of one backward of a user's script, where its hook tells of it;
                       `elements`: gradient entries that were reduced
    evaluation         rank, step, name, value
                       of the model as it was at `t_s`, the end of the step; told later, since it is computed beside
                       the training, but in the order of steps
    tuning             rank, step, what, size_bytes, buckets, step_s, trial
                       of strategy.fusion=tuned: `what` is "trial" (steps with buckets of this size took `step_s`),
                       "chosen" (the best of so many trials, in force from now on) or "changed" (steps with what was
                       chosen now take `step_s`, so that a new search begins)
    plan               rank, step, factors[{name, dimension, owner}], groups[]
                       of K-FAC, from rank 0 after the step in which it was made: who inverts which factor, null: every
                       worker does; how many neighbours travel together, none where factors stay where they are
    damping            rank, step, name, asked, taken
                       a factor of K-FAC that could not be inverted with the damping asked, in double precision either
    round              rank, step, round, clients, train_loss, alpha, whole, back[], model_bytes,
                       update_bytes, left{}, bound{}
                       of strategy=parameter_server, from the server after the last step of a round: how many updates
                       are in the mean, what the tensors took as coded, of the model once and of all updates; `whole`:
                       the model hung on nothing sent before, and clients began anew; `back`: clients that have come
                       back, and got a model of their own; `left`: clients that are out, and why; `alpha` of the round
                       and `bound`, what its schedule made of it, are null where no codec goes by bounds
    last_model         rank, step, round, model_bytes, left{}
                       likewise, of the model that all ranks end with, sent after the last step
    federated_round    rank, step, round, asked, came, available, late, dropped, waited_s, expected_s,
                       longest_worker_s, all_clients_s, longest_client_s, clients[], ranks[], elapsed_s[]
                       of strategy=federated, from the server after a round: clients that were to take part, whose
                       updates count (0: the model stays, and the round has no event `round`), that could be drawn, were
                       cut at a deadline, and went away; emulated seconds that the server waited for a client to come,
                       of the worker that took longest, as expected (null in the first round) and as reported, of all
                       clients together, and of the longest one, those that were cut included; of each of these which
                       it is, the rank of the worker that ran it, and its emulated seconds there, to six digits
    secure_round       rank, step, round, workers, survivors[], dropped{}, shares_s, recovery_s, share_bytes,
                       masked_bytes, answer_bytes
                       of strategy.secure, from the server after a round: how many workers have given shares, whose
                       updates are in the sum, and why others' are not, or who has not answered; emulated seconds until
                       shares were carried, and from the last masked update until the sum was recovered; bytes of the
                       shares given (as many go on to others), of masked updates, and of answers, without frames
    fedbuff_version    rank, step, version, clients[], workers, staleness_mean, staleness_max, train_loss, model_bytes,
                       update_bytes, all_clients_s, longest_client_s, left{}
                       of strategy=fedbuff, from the server after each version of the model: the clients of which it is
                       made, in the order in which they came; versions that there were since each began; what the
                       tensors of all models sent since the last version took as coded, and of these updates; emulated
                       seconds that the clients took; how many workers there are, and why others are out
    region_round       rank, step, round, region, clients, train_loss, model_bytes, update_bytes, sent_bytes, back[],
                       left{}
                       of strategy.region_servers, from the server of a region after the last step of a round: as of
                       `round`, of the region's clients alone; `model_bytes`: of the model that came, and went to each
                       of them; `sent_bytes`: what the tensors of their mean took as coded, which went up
    gate               rank, step, round, direction, compress, why, raw_s, compressed_s
                       of strategy.gate, from whoever sends: clients "up", the server "down", to all clients; whether
                       the round's message is compressed, and what it is predicted to take raw and compressed, decoding
                       included, null until both were measured; `why` is "measuring", "pays", "no gain", or "probe" (it
                       would not pay, and is measured again)
    mixing             rank, step, graph, edges, wan_edges, most_neighbours, spectral_gap, consensus_step_size
                       of strategy=gossip, from rank 0 after the first step: the graph, how many of its edges join two
                       regions, the most neighbours that a rank has, and how far it goes towards them in an exchange
    consensus          rank, step, distance
                       likewise, from every rank at the end: |x - mean| / |mean| of its parameters x, before all took
                       the mean
    pipeline           rank, step, pp, dp, tp, micro_batch, micro_batches, schedule, cuts[], placement[]
                       of strategy=hybrid, from rank 0 after the first step: the plan that was made of what was asked;
                       samples of a micro-batch and how many of them a replica takes in a step, the first piece of each
                       stage, and the ranks of position 0 first, of its replica 0 first
    kv_text            rank, step, text, tokens, found[], set_up_bytes, near_bytes, up_bytes, down_bytes, round_trips,
                       round_trips_ahead, first_token_s, token_s, questions, right
                       of strategy=kv_transfer, from rank 0 after the step: of each text its number, how many bytes
                       were decoded and which were found; what the far side set up first, and what is near in the end;
                       all bytes of the two ranks' connection, frames included; round trips that were waited for at
                       once, and with other work in between; emulated seconds to the first byte, and to each one from
                       there on (null of a single one); questions, and how many answers were right
    kv_quality         rank, step, text, token_match, kl_nats, relative_error, cosine, mass_recall, overlap, exact_right
                       likewise, after the last step, of the first texts, decoded in the run or not: means over steps,
                       layers and heads of what the selector came to beside exact attention; the share of steps with
                       the same most likely byte; answers that exact attention had right
    link_probe         rank, step, regions[], alpha_s[[]], rate_bit_s[[]], pairs, sent_bytes, took_s
                       of strategy=hybrid with strategy.plan, from rank 0 after the first step: the region of each rank;
                       from rank to rank, what a message takes beside its bytes, and at what rate these pass, as found
                       by round trips before the first step; how many pairs were tried, and what that sent and took
    chosen_plan        rank, step, way, place, pp, dp, tp, micro_batch, schedule, cuts[], placement[], predicted_s,
                       parts_s{pipe_s, bubble_s, link_s, dp_s}, published_s, memory_bytes[], memory_faults[]
                       likewise: how the plan was chosen, which of its plans, what it is, what a step is predicted to
                       take by the corrected model, and by AMP's, null for a schedule that it does not know; bytes of a
                       rank of each position, and what is wrong with them, of amp alone
    transform          rank, step, parameters_before, parameters, factorised[{layer, rank, full_rank, elements,
                       factor_elements, lost_share}], kept{}
                       of transform=pufferfish and the like, from rank 0 after the step in which the model changed:
                       which layers became two factors, the norm of what their weights lost over the weights', and why
                       others did not. Of transform=lora with step 0, before the first one: which layers have adapters,
                       of so many elements, and why others have none
    freeze             rank, step, epoch, frozen, layers, parameters_before, parameters, gradient_norms[]
                       of transform=freeze, from rank 0 after the step in which more layers were frozen: how many, of
                       how many, and what still learns; 2-norms of each layer's gradients over the epoch, by which it
                       was decided, null where they were not looked at
    cache              rank, step, epoch, whole, part, none, cached_samples, size_bytes
                       likewise, from every rank after each epoch in which it had a cache: samples of which it knew what
                       all frozen layers make, what fewer of them make, or nothing; what it keeps by then
    done               rank, steps, finish_s, finish_payload_bytes, parameters_crc32
                       `finish_*`: what the strategy still had to do after the last step; in no step event
    model              rank, parameters, dense_bytes_step, metric_name, metric_target, higher_is_better, routes,
                       collectives, outlived[]
                       from rank 0, once; `dense_bytes_step`: what all ranks would send in one step of uncompressed
                       ring data parallel, and of strategy=kv_transfer if all keys and values came for each byte as
                       float16; `metric_*` are null where there is none; `routes`: of each bucket the compressor's
                       Route as text, `collectives`: what carries it; null where the strategy has none;
                       `outlived`: ranks that the others go on without; 0: they wait for it to be started again
    measurement        stage, name, from, to, rate_bit_s, rtt_s, rtt_max_s, delay_s, probes, probes_span_s, burst
                       stage "idle" is before anything else, "busy" beside the workers' warm-up; `rtt_s`, and one way
                       `delay_s`: median of the probes, their mean where jitter was asked
    foreign_interface  node, interface  a way out of a node that is not emulated
    link               name, from, to, wan, wire_bytes, packets, drops, backlog_bytes, interval_s, busy_s, busy_bytes,
                       excluded_bytes, rate_bit_s
                       `excluded_bytes`: of probes and of background traffic, which `wire_bytes` leaves out; `packets`
                       leaves out probes alone, `drops` and `busy_bytes` nothing;
                       `rate_bit_s`: as asked at that moment
    rtt                name, rtt_s, forward_s, backward_s, sent
                       one probe's round trip and its two ways, the first from the link's `a`, queueing included;
                       `sent`: probes so far
    background         name, from, to, flows, finished, refused, failed, offered_bytes, delivered_bytes, wire_bytes,
                       ack_wire_bytes, late_s  traffic of others on a direction since the first step
    delay_line         name, from, to, late_p50_s, late_p99_s, late_max_s, packets, drops, asked_drops,
                       asked_drops_variance, doubled, interval_s, queue_drops, delay_mean_s, delay_deviation_s
                       `asked_drops`: mean and variance of the losses that the link's settings make for these packets;
                       `delay_*`: over the packets, of the delay they were to get, jitter included, lateness not;
                       netem tells neither delays nor lateness
    tcp                node, rtt_s, min_rtt_s, retransmitted, delivered_bytes
                       of the node's training connections (TCP_INFO), since they were opened
    node               node, cpu_s, throttled_s, memory_bytes
    host               cpu_idle_ratio, cpu_pressure_s, steal_s, interval_s, sampler_late_s, softnet_processed,
                       softnet_dropped, softnet_squeezed, collector_cpu_s, observer_cpu_s
                       `softnet_*`: sums over /proc/net/softnet_stat, which counts all packets of the machine;
                       `collector_cpu_s`: of what takes these samples; `observer_cpu_s`: of the whole process that
                       builds, records, serves metrics and shows, the collector included
    change             what, name, from, to, node, asked_s, late_s, before{}, after{}, cause
                       one of the spec's `events` took effect at `t_s`, asked for at `asked_s`; `what` as in
                       `core.spec.schedule`; `name` of a link, of a "set" with its direction and the fields of
                       LinkProfile
                       `before` and `after`, in base units of emulated time; `cause`: what the user wrote
    left               rank, node, message, late
                       a worker was killed, failed, or was put out by the others, and the run goes on without it; who
                       is started again has another `start` event; `late`: it came back, and training had ended
    fault              rank, node, message

`wire_bytes`, `packets`, `drops` of a link, `cpu_s` of a node, `throttled_s`, `cpu_pressure_s`, `softnet_*`,
`collector_cpu_s` and `observer_cpu_s` count up from the first step, a delay line's from its start; `busy_*`, `late_*`
and `delay_*` belong to the interval since the event before. `busy_s` is the length of a sampling window in which the
queue cannot have been empty, `busy_bytes` what left in it.
"""

from __future__ import annotations

NETWORK_EVENTS = frozenset({"link", "rtt", "delay_line", "tcp", "background"})
"""Measured on the network, hence in wall-clock terms until they are recorded; `measurement` events are recorded so."""
