//! The policy seam: which path next. Each policy has a file of its own and an entry in the table below; names, lists
//! of names and dispatch follow from the table.

use srdma_seams::{Duration, PathId, Rng};

use crate::config::Config;

/// What became of a unit on a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feedback {
    /// It arrived.
    Good,
    /// It arrived with congestion marks.
    Ecn,
    /// It is held lost.
    Lost,
    /// The retransmission time-out found it unanswered.
    Timeout,
}

/// Chooses paths.
pub trait PathSelector: Sized {
    /// The policy over `config.paths` paths, numbered from 0.
    fn new(config: &Config, rng: &mut Rng) -> Self;
    /// The next path.
    fn next(&mut self, rng: &mut Rng) -> PathId;
    /// What became of a unit on `path`, which is one of its own. Oblivious policies ignore it.
    fn feedback(&mut self, _path: PathId, _feedback: Feedback) {}
    /// A unit on `path` took `rtt` there and back, of which `delay` in queues. Comes before its `Good` or `Ecn`.
    fn measured(&mut self, _path: PathId, _rtt: Duration, _delay: Duration) {}
    /// Whether `path`, if it is chosen, is held dead, and a copy goes there to see.
    fn is_dead(&self, _path: PathId) -> bool {
        false
    }
    /// Whether it avoids dead paths by itself. Those of other policies are skipped for them.
    fn judges() -> bool {
        false
    }
}

macro_rules! policies {
    (
        #[doc = $first_summary:literal] $first_module:ident::$first:ident = $first_name:literal;
        $(#[doc = $summary:literal] $(#[$default:ident])? $module:ident::$kind:ident = $name:literal;)*
    ) => {
        pub mod $first_module;
        $(pub mod $module;)*

        /// How the next path is chosen.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub enum SelectorKind {
            #[doc = $first_summary]
            $first,
            $(#[doc = $summary] $(#[$default])? $kind,)*
        }

        impl SelectorKind {
            /// Every policy by the name that it has in options, variables, scenarios and reports.
            pub const ALL: &'static [(&'static str, SelectorKind)] =
                &[($first_name, SelectorKind::$first), $(($name, SelectorKind::$kind),)*];
            /// What a name must be, in words.
            pub const ONE_OF: &'static str = concat!("one of ", $first_name, $(", ", $name,)*);

            /// Its name, see [`SelectorKind::ALL`].
            pub const fn name(self) -> &'static str {
                match self {
                    SelectorKind::$first => $first_name,
                    $(SelectorKind::$kind => $name,)*
                }
            }

            /// What it does, in one line.
            pub fn summary(self) -> &'static str {
                let line = match self {
                    SelectorKind::$first => $first_summary,
                    $(SelectorKind::$kind => $summary,)*
                };
                line.trim().trim_end_matches('.')
            }
        }

        /// Any of the policies.
        #[derive(Debug)]
        pub(crate) enum Selector {
            $first($first_module::$first),
            $($kind($module::$kind),)*
        }

        impl Selector {
            /// The policy that `config` names.
            pub(crate) fn new(config: &Config, rng: &mut Rng) -> Selector {
                match config.selector {
                    SelectorKind::$first => Selector::$first(PathSelector::new(config, rng)),
                    $(SelectorKind::$kind => Selector::$kind(PathSelector::new(config, rng)),)*
                }
            }

            pub(crate) fn next(&mut self, rng: &mut Rng) -> PathId {
                match self {
                    Selector::$first(policy) => policy.next(rng),
                    $(Selector::$kind(policy) => policy.next(rng),)*
                }
            }

            pub(crate) fn feedback(&mut self, path: PathId, feedback: Feedback) {
                match self {
                    Selector::$first(policy) => policy.feedback(path, feedback),
                    $(Selector::$kind(policy) => policy.feedback(path, feedback),)*
                }
            }

            pub(crate) fn measured(&mut self, path: PathId, rtt: Duration, delay: Duration) {
                match self {
                    Selector::$first(policy) => policy.measured(path, rtt, delay),
                    $(Selector::$kind(policy) => policy.measured(path, rtt, delay),)*
                }
            }

            pub(crate) fn is_dead(&self, path: PathId) -> bool {
                match self {
                    Selector::$first(policy) => policy.is_dead(path),
                    $(Selector::$kind(policy) => policy.is_dead(path),)*
                }
            }

            pub(crate) fn judges(&self) -> bool {
                match self {
                    Selector::$first(_) => $first_module::$first::judges(),
                    $(Selector::$kind(_) => $module::$kind::judges(),)*
                }
            }
        }
    };
}

policies! {
    /// One path for everything, as a plain RNIC does.
    single::Single = "single";
    /// Each path in turn.
    round_robin::RoundRobin = "rr";
    /// Every path once per cycle, in an order drawn anew for each: pseudo-random and blind to load.
    oblivious::Oblivious = "oblivious";
    /// As oblivious, but less on paths with longer queues or marks, and nothing but copies on dead ones.
    #[default]
    adaptive::Adaptive = "adaptive";
    /// Any path, drawn anew each time: blind to load, and uneven by chance.
    random::Random = "random";
    /// In turn, slower paths less often: deficit weighted round-robin.
    dwrr::Dwrr = "dwrr";
    /// The path with the shortest round-trip time.
    best_rtt::BestRtt = "best-rtt";
    /// Where acknowledgements come from, the next packets go: after MP-RDMA.
    mp_rdma::MpRdma = "mp-rdma";
    /// Paths that were good of late are used again: after REPS.
    reps::Reps = "reps";
}

impl SelectorKind {
    /// The policy with this name.
    pub fn named(name: &str) -> Option<SelectorKind> {
        SelectorKind::ALL.iter().find(|(known, _)| *known == name).map(|&(_, kind)| kind)
    }
}

#[cfg(test)]
mod tests;
