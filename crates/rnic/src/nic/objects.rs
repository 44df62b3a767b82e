//! Objects of a device by number: protection domains, completion queues, queue pairs.

use alloc::boxed::Box;
use alloc::vec::Vec;

use srdma_seams::{Cqn, PdId, Qpn, TenantId};

use crate::qp::Qp;

/// Numbers in use, each with a count of users. Freed numbers are given out again, oldest first, so
/// that a number in a late message of the program names nothing for as long as possible.
#[derive(Debug)]
struct Numbers<T> {
    entries: Vec<Option<T>>,
    free: alloc::collections::VecDeque<u32>,
    live: u32,
}

impl<T> Default for Numbers<T> {
    fn default() -> Numbers<T> {
        Numbers { entries: Vec::new(), free: Default::default(), live: 0 }
    }
}

impl<T> Numbers<T> {
    fn insert(&mut self, value: T) -> u32 {
        self.live += 1;
        match self.free.pop_front() {
            Some(number) => {
                self.entries[number as usize] = Some(value);
                number
            }
            None => {
                self.entries.push(Some(value));
                self.entries.len() as u32 - 1
            }
        }
    }

    fn remove(&mut self, number: u32) -> Option<T> {
        let value = self.entries.get_mut(number as usize)?.take()?;
        self.free.push_back(number);
        self.live -= 1;
        Some(value)
    }

    fn get(&self, number: u32) -> Option<&T> {
        self.entries.get(number as usize)?.as_ref()
    }

    fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        self.entries.get_mut(number as usize)?.as_mut()
    }
}

#[derive(Debug)]
struct Pd {
    tenant: TenantId,
    users: u32,
}

/// Protection domains; regions are counted by the memory table, queue pairs here. All that is made with one belongs to
/// its tenant.
#[derive(Debug, Default)]
pub(crate) struct Pds(Numbers<Pd>);

impl Pds {
    pub fn live(&self) -> u32 {
        self.0.live
    }
    pub fn insert(&mut self, tenant: TenantId) -> PdId {
        PdId(self.0.insert(Pd { tenant, users: 0 }))
    }
    pub fn tenant(&self, pd: PdId) -> Option<TenantId> {
        self.0.get(pd.0).map(|pd| pd.tenant)
    }
    pub fn users(&self, pd: PdId) -> Option<u32> {
        self.0.get(pd.0).map(|pd| pd.users)
    }
    pub fn add_user(&mut self, pd: PdId) {
        if let Some(pd) = self.0.get_mut(pd.0) {
            pd.users += 1;
        }
    }
    pub fn remove_user(&mut self, pd: PdId) {
        if let Some(pd) = self.0.get_mut(pd.0) {
            pd.users = pd.users.saturating_sub(1);
        }
    }
    pub fn remove(&mut self, pd: PdId) {
        self.0.remove(pd.0);
    }
}

#[derive(Debug, Default)]
struct Cq {
    users: u32,
    broken: bool,
}

/// Completion queues.
#[derive(Debug, Default)]
pub(crate) struct Cqs(Numbers<Cq>);

impl Cqs {
    pub fn live(&self) -> u32 {
        self.0.live
    }
    pub fn insert(&mut self) -> Cqn {
        Cqn(self.0.insert(Cq::default()))
    }
    pub fn users(&self, cq: Cqn) -> Option<u32> {
        self.0.get(cq.0).map(|cq| cq.users)
    }
    pub fn add_user(&mut self, cq: Cqn) {
        if let Some(cq) = self.0.get_mut(cq.0) {
            cq.users += 1;
        }
    }
    pub fn remove_user(&mut self, cq: Cqn) {
        if let Some(cq) = self.0.get_mut(cq.0) {
            cq.users = cq.users.saturating_sub(1);
        }
    }
    pub fn remove(&mut self, cq: Cqn) {
        self.0.remove(cq.0);
    }
    /// Whether it has overflowed, or does not exist.
    pub fn is_broken(&self, cq: Cqn) -> bool {
        self.0.get(cq.0).is_none_or(|cq| cq.broken)
    }
    /// It has overflowed; true the first time.
    pub fn break_queue(&mut self, cq: Cqn) -> bool {
        self.0.get_mut(cq.0).is_some_and(|cq| !core::mem::replace(&mut cq.broken, true))
    }
}

const NOWHERE: u32 = u32::MAX;
type Leaf = [u32; 256];
type Branch = [Option<Box<Leaf>>; 256];

/// Queue pairs by number: a radix tree over the three bytes of the number, so that a packet finds
/// its queue pair with three loads and a sparse device costs little.
pub(crate) struct Qps {
    root: Vec<Option<Box<Branch>>>,
    numbers: Numbers<Box<Qp>>,
}

impl Qps {
    pub fn new() -> Qps {
        Qps { root: Vec::new(), numbers: Numbers::default() }
    }

    pub fn live(&self) -> u32 {
        self.numbers.live
    }

    /// Position of the queue pair with this number.
    pub fn position(&self, qpn: Qpn) -> Option<u32> {
        let [_, top, middle, low] = qpn.0.to_be_bytes();
        let branch = self.root.get(usize::from(top))?.as_ref()?;
        let leaf = branch[usize::from(middle)].as_ref()?;
        Some(leaf[usize::from(low)]).filter(|&position| position != NOWHERE)
    }

    fn cell(&mut self, qpn: Qpn) -> &mut u32 {
        let [_, top, middle, low] = qpn.0.to_be_bytes();
        if self.root.len() <= usize::from(top) {
            self.root.resize_with(usize::from(top) + 1, || None);
        }
        let branch = self.root[usize::from(top)].get_or_insert_with(|| Box::new([const { None }; 256]));
        let leaf = branch[usize::from(middle)].get_or_insert_with(|| Box::new([NOWHERE; 256]));
        &mut leaf[usize::from(low)]
    }

    /// Adds a queue pair; the caller has checked that its number is free. `make` gets its position.
    pub fn insert(&mut self, qpn: Qpn, mut qp: Box<Qp>, serial: u32) {
        qp.sleeper.serial = serial;
        let position = self.numbers.insert(qp);
        if let Some(qp) = self.numbers.get_mut(position) {
            qp.sleeper.index = position;
        }
        *self.cell(qpn) = position;
    }

    pub fn remove(&mut self, qpn: Qpn) -> Option<Box<Qp>> {
        let position = self.position(qpn)?;
        *self.cell(qpn) = NOWHERE;
        self.numbers.remove(position)
    }

    pub fn find(&self, qpn: Qpn) -> Option<&Qp> {
        self.numbers.get(self.position(qpn)?).map(|qp| &**qp)
    }

    pub fn find_mut(&mut self, qpn: Qpn) -> Option<&mut Qp> {
        let position = self.position(qpn)?;
        self.at(position)
    }

    /// The queue pair at a position.
    pub fn at(&mut self, position: u32) -> Option<&mut Qp> {
        self.numbers.get_mut(position).map(|qp| &mut **qp)
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Qp> {
        self.numbers.entries.iter_mut().filter_map(|entry| entry.as_deref_mut())
    }
}
