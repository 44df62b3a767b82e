//! Memory of attached programs: bytes go there, and come from there, through movers that each knows its program.

use srdma_dma::{ProcessMemory, Transfer};
use srdma_memory::{AddressSpace, Segment};
use srdma_rnic::world::{AtomicOp, CopyFault};

/// The attached programs' memory by number, and a place for bytes on their way out.
#[derive(Default)]
pub(crate) struct Programs {
    memories: Vec<Option<ProcessMemory>>,
    attached: usize,
    /// Payload of the burst that is being sent.
    staged: Vec<u8>,
    transfers: Vec<Transfer>,
    /// Which segment each of the transfers is.
    indices: Vec<usize>,
}

impl Programs {
    /// Whether any program is attached.
    pub(crate) fn is_empty(&self) -> bool {
        self.attached == 0
    }

    /// A program has come, or gone (`None`).
    pub(crate) fn set(&mut self, number: u32, memory: Option<ProcessMemory>) {
        let index = number as usize;
        if self.memories.len() <= index {
            self.memories.resize_with(index + 1, || None);
        }
        self.attached += usize::from(memory.is_some());
        self.attached -= usize::from(self.memories[index].is_some());
        self.memories[index] = memory;
    }

    /// The mover for a space; `None` if that is no program, or one that has gone.
    pub(crate) fn memory(&mut self, space: AddressSpace) -> Option<&mut ProcessMemory> {
        let AddressSpace::Program(number) = space else { return None };
        self.memories.get_mut(number as usize)?.as_mut()
    }

    /// Copies what `segments` describe of programs' memory here, one after the other; which of them is not there, if one
    /// is not. [`Programs::staged_at`] says where.
    pub(crate) fn stage(&mut self, segments: &[Segment]) -> Result<(), usize> {
        let is_theirs = |segment: &Segment| matches!(segment.space, AddressSpace::Program(_));
        let bytes: usize =
            segments.iter().filter(|segment| is_theirs(segment)).map(|segment| segment.length as usize).sum();
        if self.staged.len() < bytes {
            self.staged.resize(bytes, 0);
        }
        let mut rest = self.staged.as_mut_slice();
        let Some(space) = segments.iter().find(|segment| is_theirs(segment)).map(|segment| segment.space)
        else {
            return Ok(());
        };
        self.transfers.clear();
        self.indices.clear();
        for (index, segment) in segments.iter().enumerate().filter(|(_, segment)| is_theirs(segment)) {
            // A burst is of one queue pair, hence of one program.
            if segment.space != space {
                return Err(index);
            }
            let (ours, others) = rest.split_at_mut(segment.length as usize);
            rest = others;
            self.transfers.push(Transfer::back(ours, segment.address));
            self.indices.push(index);
        }
        let AddressSpace::Program(number) = space else { return Ok(()) };
        let memory = self.memories.get_mut(number as usize).and_then(Option::as_mut).ok_or(0_usize)?;
        memory.read(&self.transfers).map_err(|fault| self.indices.get(fault.index).copied().unwrap_or(0))
    }

    /// Address of byte `offset` of what was staged.
    pub(crate) fn staged_at(&self, offset: usize) -> usize {
        self.staged.as_ptr() as usize + offset
    }

    /// An atomic on 8 bytes of a program's memory.
    pub(crate) fn atomic(&mut self, at: Segment, op: AtomicOp) -> Result<u64, CopyFault> {
        let fault = CopyFault { index: 0 };
        let memory = self.memory(at.space).filter(|_| at.length == 8).ok_or(fault)?;
        memory.atomic_u64(at.address, |old| changed(op, old)).map_err(|_| fault)
    }
}

/// What an atomic makes of a value; `None` leaves it.
pub(crate) fn changed(op: AtomicOp, old: u64) -> Option<u64> {
    match op {
        AtomicOp::CompareSwap { compare, swap } => (old == compare).then_some(swap),
        AtomicOp::FetchAdd { add } => Some(old.wrapping_add(add)),
    }
}
