//! May this queue pair do that? Every local and remote use of memory asks here, and nowhere else.
//!
//! Tenant and protection domain are those of the queue pair (`Asker`); key, bounds and region rights
//! are the memory table's; access flags are the queue pair's. Keys are asked about each time bytes
//! are about to move, retransmissions included, so that nothing follows a deregistration.

use srdma_abi::{Access, Cause, Sge};
use srdma_memory::{Asker, Refused, Rights, Segment, Table, Translation};
use srdma_seams::MrKey;
use srdma_wire::NakCode;

/// Asks for one scatter-gather element (or part of one) of our own program.
pub(crate) fn local(table: &Table, asker: Asker, part: &Sge, needs: Rights) -> Result<Segment, Cause> {
    match table.resolve(asker, MrKey(part.lkey), part.address, part.length, needs) {
        Ok(translation) => Ok(translation.segment),
        Err(Refused::Key(_)) => Err(Cause::LocalKey),
        Err(Refused::Bounds) => Err(Cause::LocalBounds),
        Err(Refused::Rights) => Err(Cause::LocalAccess),
    }
}

/// What a peer names in a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// Remote key.
    pub rkey: u32,
    /// First byte.
    pub address: u64,
    /// Bytes of the whole message, so that a message out of bounds is refused on its first packet.
    pub length: u32,
}

/// Asks for a whole message of a peer. `qp_access` are the queue pair's flags, `needs` the one right
/// (REMOTE_WRITE, REMOTE_READ or REMOTE_ATOMIC) that both it and the region must grant.
///
/// Not to be called for messages of length 0: they touch no memory, and their key is not checked
/// (IBTA C9-88); [`permits`] still applies.
pub(crate) fn remote(
    table: &Table,
    asker: Asker,
    qp_access: Access,
    target: &Target,
    needs: Rights,
) -> Result<Translation, NakCode> {
    permits(qp_access, needs)?;
    match table.resolve(asker, MrKey(target.rkey), target.address, target.length, needs) {
        Ok(translation) => Ok(translation),
        Err(Refused::Key(_)) => Err(NakCode::Key),
        Err(Refused::Bounds) => Err(NakCode::Bounds),
        Err(Refused::Rights) => Err(NakCode::Access),
    }
}

/// Whether the queue pair's own flags grant the right.
pub(crate) fn permits(qp_access: Access, needs: Rights) -> Result<(), NakCode> {
    match qp_access.contains(Access(needs.0)) {
        true => Ok(()),
        false => Err(NakCode::Access),
    }
}
