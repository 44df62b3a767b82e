//! Work requests that fail on purpose, as a plan of faults wants it.

use srdma_abi::cause::INJECTED;
use srdma_abi::Cause;
use srdma_seams::fault::{Direction, Faults};
use srdma_seams::Observer;
use srdma_wire::NakCode;

use crate::cx::Cx;
use crate::ordering::Message;
use crate::qp::Qp;
use crate::world::World;

/// What a plan of faults has in store for a queue pair.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Doom {
    send: (u64, Cause),
    receive: (u64, Cause),
    struck: bool,
}

/// No queue gets that far.
const NEVER: (u64, Cause) = (u64::MAX, Cause::Internal);

impl Doom {
    /// For the device's queue pair number `serial`, from 1.
    pub fn new(faults: &Faults, serial: u32) -> Doom {
        let of = |queue| {
            let failure = faults.failure(serial, queue)?;
            Some((failure.number.checked_sub(1)?, Cause::from_code(failure.cause.into())?))
        };
        Doom {
            send: of(Direction::Send).unwrap_or(NEVER),
            receive: of(Direction::Receive).unwrap_or(NEVER),
            struck: false,
        }
    }

    /// Whether send number `number` of a connection, which would complete now, is to fail instead.
    pub fn strikes_send(&self, number: u64) -> bool {
        number == self.send.0
    }

    /// It fails; with what.
    pub fn strike_send(&mut self) -> Cause {
        self.struck = true;
        self.send.1
    }
}

impl Qp {
    /// The number that the program and the reports get for `cause`.
    pub(crate) fn code(&self, cause: Cause) -> u16 {
        let injected = self.doom.struck && cause != Cause::Flushed;
        cause as u16 | if injected { INJECTED } else { 0 }
    }

    /// Fails the queue pair if the receive that `message` would complete now is to fail; whether it was. The peer hears
    /// of it as of any failure of ours.
    pub(crate) fn fails_doomed_receive<W: World, O: Observer>(
        &mut self,
        cx: &mut Cx<'_, W, O>,
        message: &Message,
    ) -> bool {
        let (number, cause) = self.doom.receive;
        if message.kind.and_then(|kind| kind.receive()) != Some(number) {
            return false;
        }
        self.doom.struck = true;
        let landed = self.responder.tracker.landed();
        self.refuse_now(cx, landed.saturating_sub(1), NakCode::Failed, Some(cause));
        true
    }
}
