//! Nobody forks while a slot is being claimed.
//!
//! A child must give up the slots of its parent. Between the moment that a port is bound and the moment that the device
//! knows of it, a child of that moment could not find it, and would keep the slot claimed for as long as it lives. So
//! whoever claims holds a lock, and so does whoever forks (pthread_atfork(3)).

use std::cell::RefCell;
use std::sync::{Mutex, MutexGuard, PoisonError};

static CLAIMS: Mutex<()> = Mutex::new(());

thread_local! {
    /// Held by this thread while it forks, in the child too.
    static FORKING: RefCell<Option<Claiming>> = const { RefCell::new(None) };
}

/// While it lives, no child comes into being.
pub struct Claiming(#[allow(dead_code)] MutexGuard<'static, ()>);

/// Something is about to be made that a child must know of.
pub fn claiming() -> Claiming {
    Claiming(CLAIMS.lock().unwrap_or_else(PoisonError::into_inner))
}

/// This thread is about to fork: waits until nothing is being claimed.
pub fn before_fork() {
    let claiming = claiming();
    // A thread that forks on its way out has nowhere to keep it; then it is not kept, as before there was this lock.
    let _ = FORKING.try_with(|forking| *forking.borrow_mut() = Some(claiming));
}

/// It has forked: in the parent and in the child.
pub fn after_fork() {
    let _ = FORKING.try_with(|forking| forking.borrow_mut().take());
}
