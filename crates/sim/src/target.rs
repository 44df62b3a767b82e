//! What a fault befalls, by name.

use srdma_fabric::{End, Graph, LinkId};

/// What can be named, for whoever named something else.
pub(crate) const TARGETS: &str = "a switch (leaf0, spine1), a host (host2), a cable (leaf0-spine1), one direction of it \
                                  (leaf0>spine1), or a group of switches where the network has some (plane0, pod1)";

/// The links that `name` stands for, in both directions unless it says which; `None` if there are none.
pub(crate) fn links_of(graph: &Graph, name: &str) -> Option<Vec<LinkId>> {
    let between = |a: &str, b: &str| Some((end(graph, a)?, end(graph, b)?));
    let links = if let Some((a, b)) = name.split_once('-') {
        let (a, b) = between(a, b)?;
        links_where(graph, |from, to| (from, to) == (a, b) || (from, to) == (b, a))
    } else if let Some((a, b)) = name.split_once('>') {
        let (a, b) = between(a, b)?;
        links_where(graph, |from, to| (from, to) == (a, b))
    } else if let Some(end) = end(graph, name) {
        links_where(graph, |from, to| from == end || to == end)
    } else {
        let group = graph.groups.iter().find(|group| group.name == name)?;
        let inside = |end| matches!(end, End::Switch(switch) if group.switches.contains(&switch));
        links_where(graph, |from, to| inside(from) || inside(to))
    };
    (!links.is_empty()).then_some(links)
}

/// Cable *n* has links 2*n* (from, to) and 2*n* + 1.
fn links_where(graph: &Graph, wanted: impl Fn(End, End) -> bool) -> Vec<LinkId> {
    let directions = graph.cables.iter().flat_map(|cable| [(cable.from, cable.to), (cable.to, cable.from)]);
    let wanted = directions.enumerate().filter(|&(_, (from, to))| wanted(from, to));
    wanted.map(|(link, _)| LinkId(link as u32)).collect()
}

fn end(graph: &Graph, name: &str) -> Option<End> {
    let host = name.strip_prefix("host").and_then(|number| number.parse().ok());
    let host = host.filter(|&host: &u32| host < graph.hosts).map(End::Host);
    host.or_else(|| graph.switch_named(name).map(End::Switch))
}
