//! C programs of ours, and two of the distribution, on the linked libraries and the loopback device.
#![allow(clippy::unwrap_used)]

mod ground;

use std::path::Path;

/// Runs `tests/c/NAME.c`, which checks itself.
fn passes(name: &str) {
    let Some(lib) = ground::lib() else { return };
    let Some(program) = ground::compile_for_us(name, &lib) else { return };
    ground::output(&mut ground::on_our_libraries(&program, &lib));
}

#[test]
fn absurd_arguments_are_refused_as_the_manual_pages_say() {
    passes("absurd");
}

#[test]
fn every_operation_moves_its_bytes_by_posts_and_by_the_builder() {
    passes("transfers");
}

#[test]
fn completion_events_wake_once_and_removal_waits_for_their_acknowledgement() {
    passes("events");
}

#[test]
fn an_overrun_queue_is_told_of_once_and_events_of_the_gone_are_dropped() {
    passes("async");
}

#[test]
fn ibv_devices_and_ibv_devinfo_show_the_device_and_nothing_else() {
    let Some(lib) = ground::lib() else { return };
    for (name, arguments, shown) in [
        ("ibv_devices", &[] as &[&str], &["stellar0"] as &[&str]),
        ("ibv_devinfo", &["-v"], &["stellar0", "PORT_ACTIVE", "Ethernet", "::ffff:127.0.0.1, RoCE v2"]),
    ] {
        let program = Path::new("/usr/bin").join(name);
        if !program.is_file() {
            return ground::skip("ibverbs-utils is not installed (Debian: apt install ibverbs-utils)");
        }
        let out = ground::on_our_libraries(&program, &lib).args(arguments).output().unwrap();
        let (text, errors) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
        assert!(out.status.success(), "{name}: {text}{errors}");
        for word in shown {
            assert!(text.contains(word), "{name}: {word} in {text}");
        }
        assert_eq!(errors, "", "{name} is quiet on stderr");
    }
}
