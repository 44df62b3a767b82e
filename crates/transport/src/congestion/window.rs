//! A window between its bounds, and what it was before it last shrank.

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Window {
    bytes: u64,
    /// What a full packet costs: the least.
    packet: u64,
    max: u64,
    before: Option<u64>,
}

impl Window {
    pub(super) fn new(initial: u64, packet: u64, max: u64) -> Window {
        let packet = packet.max(1);
        let max = max.max(packet);
        Window { bytes: initial.clamp(packet, max), packet, max, before: None }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn packet(&self) -> u64 {
        self.packet
    }

    pub(super) fn set(&mut self, bytes: u64) {
        self.bytes = bytes.clamp(self.packet, self.max);
    }

    pub(super) fn set_packet(&mut self, packet: u64) {
        self.packet = packet.max(1);
        self.max = self.max.max(self.packet);
        self.set(self.bytes);
    }

    /// It is about to shrink, perhaps for nothing.
    pub(super) fn remember(&mut self) {
        self.before = Some(self.bytes);
    }

    /// It was for nothing.
    pub(super) fn restore(&mut self) {
        if let Some(before) = self.before.take() {
            self.set(self.bytes.max(before));
        }
    }
}
