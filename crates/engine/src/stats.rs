//! The report of `--stats`: counters of a device as JSON.

use std::net::IpAddr;

use serde_json::{json, Map, Value};
use srdma_seams::Slot;

use crate::counters::{drop_name, retransmit_name, QpCounters, DROP_CAUSES};
use crate::options::Options;
use crate::worker::Worker;

/// Version of the report's layout. It grows; a field that changes its meaning raises it.
const VERSION: u32 = 1;

/// What there is to say of the device itself, copied out.
pub(crate) struct Head {
    slot: Option<Slot>,
    socket: Option<srdma_net::Counters>,
    placement_calls: u64,
    placed_straight: u64,
    brought_back: u64,
    dropped: [u64; DROP_CAUSES],
    qps_unlisted: u64,
    /// Of a plan of faults: its seed, freezes and failed work requests so far.
    injected: Option<(u64, u64, u64)>,
}

impl Head {
    /// Takes it.
    pub(crate) fn of(worker: &Worker) -> Head {
        let plan = worker.world.endpoint.as_ref().and_then(|endpoint| endpoint.faults());
        Head {
            injected: plan.map(|plan| (plan.seed(), worker.freezes, worker.counters.injected_failures)),
            slot: worker.slot().map(|(_, slot)| slot),
            socket: worker.world.endpoint.as_ref().map(|endpoint| endpoint.counters()),
            placement_calls: worker.world.placement_calls,
            placed_straight: worker.world.straight.placed,
            brought_back: worker.world.straight.brought_back,
            dropped: worker.counters.dropped,
            qps_unlisted: worker.counters.finished_unlisted,
        }
    }

    /// As JSON.
    pub(crate) fn value(&self, address: IpAddr, options: &Options) -> Value {
        let socket = self.socket.map(|counters| {
            let named = counters.named();
            Value::Object(named.iter().map(|(name, value)| ((*name).into(), json!(value))).collect())
        });
        let program = std::env::args_os().next().map(|arg| arg.to_string_lossy().into_owned());
        json!({
            "version": VERSION,
            "program": program,
            "pid": std::process::id(),
            "device": {
                "address": address.to_string(),
                "slot": self.slot.map(|slot| slot.0),
                "port": self.slot.map(Slot::port),
                "paths": options.paths,
                "selector": options.selector.name(),
                "order": format!("{:?}", options.order).to_lowercase(),
            },
            "socket": socket,
            "faults": injected(self.socket, self.injected, options),
            "memory": {
                "placement_calls": self.placement_calls,
                "placed_straight": self.placed_straight,
                "brought_back": self.brought_back,
            },
            "dropped": named(&self.dropped, drop_name),
            "qps_unlisted": self.qps_unlisted,
        })
    }
}

/// The report, ready to be written.
pub(crate) fn report(address: IpAddr, options: &Options, worker: &Worker) -> String {
    let mut report = Head::of(worker).value(address, options);
    report["qps"] = worker.counters.all().map(|(qpn, qp, live)| queue_pair(qpn, qp, live)).collect();
    let counters = &worker.counters;
    report["unlisted"] =
        (counters.finished_unlisted > 0).then(|| queue_pair(0, &counters.unlisted, false)).into();
    let mut text = serde_json::to_string_pretty(&report).unwrap_or_default();
    text.push('\n');
    text
}

/// What a plan of faults has done, by kind; null without one.
fn injected(
    socket: Option<srdma_net::Counters>,
    injected: Option<(u64, u64, u64)>,
    options: &Options,
) -> Value {
    let (Some(counters), Some((seed, freezes, failures))) = (socket, injected) else { return Value::Null };
    json!({
        "script": options.faults.to_string(),
        "seed": seed,
        "drops": counters.fault_drops,
        "duplicates": counters.fault_duplicates,
        "corruptions": counters.fault_corruptions,
        "delays": counters.fault_delays,
        "undelayed": counters.fault_undelayed,
        "freezes": freezes,
        "failures": failures,
    })
}

fn named(counts: &[u64], name: fn(usize) -> &'static str) -> Value {
    let entries = counts.iter().enumerate().map(|(index, count)| (name(index).into(), json!(count)));
    Value::Object(entries.collect::<Map<_, _>>())
}

/// One queue pair as JSON.
pub(crate) fn queue_pair(qpn: u32, qp: &QpCounters, live: bool) -> Value {
    let used = qp.paths.iter().enumerate().filter(|(_, path)| path.units > 0 || path.received > 0);
    let paths: Vec<Value> = used
        .map(|(index, path)| {
            json!({
                "path": index,
                "units": path.units,
                "packets": path.packets,
                "bytes": path.bytes,
                "acked": path.acked,
                "lost": path.lost,
                "ce": path.ce,
                "rtt_min_ns": path.rtt_min_ns,
                "received": path.received,
            })
        })
        .collect();
    json!({
        "qpn": qpn,
        "live": live,
        "peer": qp.peer.map(|peer| peer.to_string()),
        "peer_qpn": qp.peer_qpn,
        "failure": qp.failure,
        "units_sent": qp.units_sent,
        "packets_sent": qp.packets_sent,
        "bytes_sent": qp.bytes_sent,
        "packets_received": qp.packets_received,
        "bytes_received": qp.bytes_received,
        "retransmitted": named(&qp.retransmitted, retransmit_name),
        "lost": named(&qp.lost, retransmit_name),
        "undone": qp.undone,
        "tail_probes": qp.tail_probes,
        "rtos": qp.rtos,
        "dropped": named(&qp.dropped, drop_name),
        "held": qp.held,
        "out_of_order_max_packets": qp.ahead_max_packets,
        "acks_sent": qp.acks_sent,
        "rnr_sent": qp.rnr_sent,
        "rnr_received": qp.rnr_received,
        "naks_sent": qp.naks_sent,
        "naks_received": qp.naks_received,
        "ce_marked": qp.ce_marked,
        "rtt_ns": { "min": qp.rtt_min_ns, "smoothed": qp.rtt_smoothed_ns, "max": qp.rtt_max_ns },
        "window_bytes": qp.window_bytes,
        "window_max_bytes": qp.window_max_bytes,
        "mtu_bytes": qp.mtu_bytes,
        "path_narrowed": qp.narrowed,
        "path_widened": qp.widened,
        "paths_suspected": qp.paths_suspected,
        "paths_restored": qp.paths_restored,
        "paths": paths,
    })
}
