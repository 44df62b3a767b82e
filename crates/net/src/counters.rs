//! What an endpoint has done so far, in plain numbers for reports.

/// Totals since the endpoint was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// `sendmsg` and `sendmmsg` calls that succeeded.
    pub send_calls: u64,
    /// Messages handed over by them: one or more packets each.
    pub sent_messages: u64,
    /// Messages that the kernel or the device cuts into packets (GSO).
    pub gso_messages: u64,
    /// Packets sent, control packets included.
    pub sent_packets: u64,
    /// Bytes of UDP payload sent.
    pub sent_bytes: u64,
    /// Packets of a burst that the kernel took only in part: sent as far as the caller knows, but lost.
    pub sent_lost: u64,
    /// Bursts refused because the socket was full.
    pub send_busy: u64,
    /// Bursts refused because payload was not mapped.
    pub send_faults: u64,
    /// Bursts refused because of the route or permissions.
    pub send_unreachable: u64,
    /// Bursts refused because of the MTU.
    pub send_too_big: u64,
    /// Times that GSO was given up (0 or 1 unless it was switched on again).
    pub gso_fallbacks: u64,
    /// Path sockets open.
    pub path_sockets: u64,
    /// Paths that share the socket of another because none could be opened.
    pub path_shared: u64,
    /// `recvmmsg` calls.
    pub receive_calls: u64,
    /// Of those, calls that found nothing.
    pub receive_empty: u64,
    /// Datagrams received as the socket delivered them, each one or more packets.
    pub received_datagrams: u64,
    /// Packets received; divided by `received_datagrams` it is the GRO ratio.
    pub received_packets: u64,
    /// Bytes of UDP payload received.
    pub received_bytes: u64,
    /// Packets received with a congestion mark (CE).
    pub received_ce: u64,
    /// Datagrams longer than any buffer, or of an unknown family: discarded.
    pub received_unusable: u64,
    /// Datagrams that the kernel dropped because the receive buffer was full.
    pub kernel_drops: u64,
    /// Packets that the fault plan dropped.
    pub fault_drops: u64,
    /// Packets that the fault plan sent twice.
    pub fault_duplicates: u64,
    /// Packets that the fault plan changed.
    pub fault_corruptions: u64,
    /// Packets that the fault plan delayed.
    pub fault_delays: u64,
    /// Packets that it would have delayed but for the bound of its queue.
    pub fault_undelayed: u64,
    /// Packets written to the capture file.
    pub captured_packets: u64,
}

impl Counters {
    /// Every counter with its name, in the order above.
    pub fn named(&self) -> [(&'static str, u64); 27] {
        let Counters {
            send_calls,
            sent_messages,
            gso_messages,
            sent_packets,
            sent_bytes,
            sent_lost,
            send_busy,
            send_faults,
            send_unreachable,
            send_too_big,
            gso_fallbacks,
            path_sockets,
            path_shared,
            receive_calls,
            receive_empty,
            received_datagrams,
            received_packets,
            received_bytes,
            received_ce,
            received_unusable,
            kernel_drops,
            fault_drops,
            fault_duplicates,
            fault_corruptions,
            fault_delays,
            fault_undelayed,
            captured_packets,
        } = *self;
        [
            ("send_calls", send_calls),
            ("sent_messages", sent_messages),
            ("gso_messages", gso_messages),
            ("sent_packets", sent_packets),
            ("sent_bytes", sent_bytes),
            ("sent_lost", sent_lost),
            ("send_busy", send_busy),
            ("send_faults", send_faults),
            ("send_unreachable", send_unreachable),
            ("send_too_big", send_too_big),
            ("gso_fallbacks", gso_fallbacks),
            ("path_sockets", path_sockets),
            ("path_shared", path_shared),
            ("receive_calls", receive_calls),
            ("receive_empty", receive_empty),
            ("received_datagrams", received_datagrams),
            ("received_packets", received_packets),
            ("received_bytes", received_bytes),
            ("received_ce", received_ce),
            ("received_unusable", received_unusable),
            ("kernel_drops", kernel_drops),
            ("fault_drops", fault_drops),
            ("fault_duplicates", fault_duplicates),
            ("fault_corruptions", fault_corruptions),
            ("fault_delays", fault_delays),
            ("fault_undelayed", fault_undelayed),
            ("captured_packets", captured_packets),
        ]
    }
}
