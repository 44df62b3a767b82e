//! `srdma check` against `srdma check --listen`, over loopback and across a fabric of namespaces.
#![allow(clippy::unwrap_used)]

mod support;

use serde_json::Value;
use std::process::Command;
use support::{check, namespaces_possible, stdout, Listening, Namespaces, SRDMA};

fn srdma() -> Command {
    Command::new(SRDMA)
}

#[test]
fn a_listener_answers_over_both_versions_of_ip() {
    // Any 127/8 address is this host's: one that nothing else uses.
    for address in ["127.91.4.1", "::1"] {
        let listening = Listening::start(srdma(), &["--addr", address]);
        let slot = listening.slot.to_string();
        let (code, told) = check(srdma(), &[address, "--slot", &slot, "--count", "5", "--paths", "16"]);
        assert_eq!((code, &told["reachable"]), (0, &Value::Bool(true)), "{told:#}");
        assert_eq!(told["port"], listening.port, "{told:#}");
        assert_eq!(told["ports"][0]["state"], "answers", "{told:#}");
        assert_eq!(told["ports"][0]["version"], 1, "{told:#}");
        assert_eq!((&told["rtt"]["sent"], &told["rtt"]["answered"]), (&5.into(), &5.into()), "{told:#}");
        assert_eq!(told["nat"]["translated"], false, "{told:#}");
        assert_eq!(told["packet_size"]["fails_bytes"], Value::Null, "{told:#}");
        assert_eq!((&told["paths"]["distinct"], &told["paths"]["certainty"]), (&1.into(), &"direct".into()));
        assert_eq!(told["paths"]["source_ports_reached"], 16, "{told:#}");
    }
}

#[test]
fn a_second_listener_takes_the_next_slot_and_both_answer() {
    let address = "127.91.4.2";
    let first = Listening::start(srdma(), &["--addr", address]);
    let second = Listening::start(srdma(), &["--addr", address]);
    assert_eq!((first.slot, first.port, second.slot, second.port), (0, 4791, 1, 61001));
    let (code, told) = check(srdma(), &[address, "--paths", "0", "--count", "1"]);
    let states: Vec<&str> =
        told["ports"].as_array().unwrap().iter().map(|port| port["state"].as_str().unwrap()).collect();
    assert_eq!(code, 0);
    assert_eq!(states[..3], ["answers", "answers", "closed"], "{told:#}");
    let claimed = srdma().args(["check", "--listen", "--addr", address, "--slot", "1"]).output().unwrap();
    assert_eq!(claimed.status.code(), Some(1), "{claimed:?}");
}

#[test]
fn a_host_where_nothing_runs_is_up_but_not_reached() {
    let output = srdma().args(["check", "127.91.4.3", "--slot", "200"]).output().unwrap();
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.lines().last().unwrap().starts_with("NOT REACHED: 127.91.4.3 is up"), "{text}");
}

/// Two hosts, two leaves, four spines: every router hashes over addresses and ports.
fn fabric(icmp_ratelimit_ms: u32) -> Namespaces {
    let net = Namespaces::new(&["a", "l1", "s1", "s2", "s3", "s4", "l2", "b"]);
    let tune = format!(
        "sysctl -qw net.ipv4.ip_forward=1 net.ipv4.fib_multipath_hash_policy=1 \
         net.ipv4.icmp_ratelimit={icmp_ratelimit_ms}"
    );
    for router in ["l1", "s1", "s2", "s3", "s4", "l2"] {
        net.sh(router, &tune);
    }
    net.link(("a", "eth0", "10.80.0.2"), ("l1", "host", "10.80.0.1"));
    net.link(("b", "eth0", "10.80.9.2"), ("l2", "host", "10.80.9.1"));
    let (mut up, mut down) = (String::new(), String::new());
    for i in 1..=4 {
        let spine = format!("s{i}");
        let at = |third: u8, last: u8| format!("10.80.{third}{i}.{last}");
        net.link(("l1", &spine, &at(1, 1)), (&spine, "l1", &at(1, 2)));
        net.link((&spine, "l2", &at(2, 1)), ("l2", &spine, &at(2, 2)));
        net.sh(&spine, &format!("ip route add 10.80.0.0/24 via {}", at(1, 1)));
        net.sh(&spine, &format!("ip route add 10.80.9.0/24 via {}", at(2, 2)));
        up += &format!(" nexthop via {}", at(1, 2));
        down += &format!(" nexthop via {}", at(2, 1));
    }
    net.sh("l1", &format!("ip route add 10.80.9.0/24{up}"));
    net.sh("l2", &format!("ip route add 10.80.0.0/24{down}"));
    net.sh("a", "ip route add default via 10.80.0.1");
    net.sh("b", "ip route add default via 10.80.9.1");
    net
}

const B: &str = "10.80.9.2";

#[test]
fn four_spines_are_found_as_four_paths() {
    if !namespaces_possible("four_spines_are_found_as_four_paths") {
        return;
    }
    let net = fabric(0);
    let _listening = Listening::start(net.command("b", SRDMA), &[]);
    let from_a = |arguments: &[&str]| check(net.command("a", SRDMA), arguments);

    let (code, told) = from_a(&[B]);
    assert_eq!(code, 0, "{told:#}");
    let paths = &told["paths"];
    assert_eq!((&paths["distinct"], &paths["certainty"]), (&4.into(), &"exact".into()), "{paths:#}");
    assert_eq!(paths["source_ports_reached"], 128, "{paths:#}");
    let spines: Vec<&str> = paths["hops"][1]["routers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|r| r["address"].as_str().unwrap())
        .collect();
    assert_eq!(spines, ["10.80.11.2", "10.80.12.2", "10.80.13.2", "10.80.14.2"]);
    assert_eq!(told["ports"][0]["routers_between"], 3, "{told:#}");
    assert_eq!(told["packet_size"]["passes_bytes"], 1500, "{told:#}");

    // One spine down: the fabric has three paths, and the count says so.
    net.sh(
        "l1",
        "ip route replace 10.80.9.0/24 nexthop via 10.80.11.2 nexthop via 10.80.12.2 nexthop via 10.80.13.2",
    );
    let (_, told) = from_a(&[B, "--count", "1"]);
    assert_eq!(told["paths"]["hops"][1]["routers"].as_array().unwrap().len(), 3, "{told:#}");

    // A narrow link: the size that passes is found, and who named the limit.
    net.sh("l1", "ip route replace 10.80.9.0/24 via 10.80.11.2 && ip link set s1 mtu 1430");
    let (_, told) = from_a(&[B, "--count", "1", "--paths", "0"]);
    let size = &told["packet_size"];
    assert_eq!((&size["passes_bytes"], &size["interface_bytes"]), (&1430.into(), &1500.into()), "{size:#}");
    assert_eq!((&size["limit_named_bytes"], &size["limit_named_by"]), (&1430.into(), &"10.80.0.1".into()));

    // Routers that never say anything: the number is not made up.
    for router in ["l1", "s1", "l2"] {
        net.sh(
            router,
            "nft add table ip q && nft 'add chain ip q o { type filter hook output priority 0; }'",
        );
        net.sh(router, "nft add rule ip q o icmp type time-exceeded drop");
    }
    let (code, told) = from_a(&[B, "--count", "1"]);
    let paths = &told["paths"];
    assert_eq!(
        (code, &paths["distinct"], &paths["certainty"]),
        (0, &Value::Null, &"unknown".into()),
        "{told:#}"
    );
}

#[test]
fn firewalls_and_address_translation_are_named() {
    if !namespaces_possible("firewalls_and_address_translation_are_named") {
        return;
    }
    let net = fabric(0);
    let _listening = Listening::start(net.command("b", SRDMA), &[]);
    let from_a = || check(net.command("a", SRDMA), &[B, "--count", "1", "--paths", "4"]);
    let filter = |rule: &str| {
        net.sh("l2", "nft flush ruleset; nft add table ip f");
        net.sh("l2", "nft 'add chain ip f w { type filter hook forward priority 0; }'");
        net.sh("l2", &format!("nft add rule ip f w ip daddr {B} udp dport '{{ 4791, 61001-61255 }}' {rule}"));
    };
    for (rule, state, verdict) in [
        ("drop", "silent", "the last router that answers is at hop 3"),
        ("reject with icmp type admin-prohibited", "prohibited", "a firewall refuses UDP"),
        ("reject with icmp type port-unreachable", "prohibited", "a firewall refuses UDP"),
        ("reject with icmp type host-unreachable", "unreachable", "no way to"),
    ] {
        filter(rule);
        let (code, told) = from_a();
        assert_eq!((code, &told["ports"][0]["state"]), (1, &state.into()), "{rule}: {told:#}");
        assert!(told["verdict"].as_str().unwrap().contains(verdict), "{rule}: {told:#}");
    }
    net.sh("l2", "nft flush ruleset");
    net.sh("l1", "nft add table ip n && nft 'add chain ip n p { type nat hook postrouting priority 100; }'");
    net.sh("l1", "nft add rule ip n p ip saddr 10.80.0.2 udp dport 4791 snat to 10.80.0.77");
    let (code, told) = from_a();
    assert_eq!((code, &told["nat"]["translated"]), (0, &true.into()), "{told:#}");
    assert!(told["nat"]["ours"].as_str().unwrap().starts_with("10.80.0.2:"), "{told:#}");
    assert!(told["nat"]["observed"].as_str().unwrap().starts_with("10.80.0.77:"), "{told:#}");
}

#[test]
fn routers_that_limit_their_answers_leave_a_lower_bound() {
    if !namespaces_possible("routers_that_limit_their_answers_leave_a_lower_bound") {
        return;
    }
    // Linux as it comes: six ICMP errors at once to a host, then one a second.
    let net = fabric(1000);
    let _listening = Listening::start(net.command("b", SRDMA), &[]);
    let (code, told) = check(net.command("a", SRDMA), &[B, "--count", "1"]);
    let paths = &told["paths"];
    assert_eq!((code, &paths["distinct"]), (0, &4.into()), "{told:#}");
    assert!(paths["certainty"] != "exact", "{told:#}");
    assert!(paths["hops"][1]["answered"].as_u64().unwrap() < 128, "{told:#}");
    assert_eq!(paths["hops"][1]["limited"], true, "{told:#}");
}

#[test]
fn a_host_that_limits_its_refusals_is_not_called_silent() {
    if !namespaces_possible("a_host_that_limits_its_refusals_is_not_called_silent") {
        return;
    }
    let states = |icmp_ratelimit_ms: u32| {
        let net = Namespaces::new(&["a", "b"]);
        net.link(("a", "eth0", "10.80.3.1"), ("b", "eth0", "10.80.3.2"));
        net.sh("b", &format!("sysctl -qw net.ipv4.icmp_ratelimit={icmp_ratelimit_ms}"));
        let (code, told) = check(net.command("a", SRDMA), &["10.80.3.2", "--paths", "0"]);
        assert_eq!(code, 1, "{told:#}");
        let ports = told["ports"].as_array().unwrap().clone();
        ports.iter().map(|port| port["state"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    // Eight ports are asked. As it comes, Linux refuses six at once and then one a second.
    assert_eq!(states(1_000), ["closed"; 8]);
    // With one in twenty seconds there is no telling, and it is not told.
    let hardly = states(20_000);
    assert!(hardly.iter().all(|state| ["closed", "unsure"].contains(&&**state)), "{hardly:?}");
    assert!(hardly.iter().any(|state| state == "unsure"), "{hardly:?}");
}
