//! C programs of ours, and two of the distribution, on the linked libraries and the loopback device.
#![allow(clippy::unwrap_used)]

mod ground;

use std::path::Path;

/// Runs `tests/c/NAME.c`, which checks itself; what it leaves on stderr, if it could be run.
fn passes(name: &str) -> Option<String> {
    let lib = ground::lib()?;
    let program = ground::compile_for_us(name, &lib)?;
    let out = ground::on_our_libraries(&program, &lib).output().unwrap();
    let (text, errors) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success(), "{name}: {}\n{errors}", out.status);
    assert_eq!(text, "", "standard output is the program's alone");
    Some(errors.into_owned())
}

/// Of all that is refused, only an address without a GID is worth a word, as the program has an option for it.
#[test]
fn absurd_arguments_are_refused_as_the_manual_pages_say() {
    let Some(errors) = passes("absurd") else { return };
    assert_eq!(errors.lines().count(), 1, "{errors}");
    assert!(errors.contains("-g 0"), "{errors}");
}

#[test]
fn full_queues_wrong_lists_and_missing_memory_end_as_errors_of_what_is_wrong_alone() {
    passes("mistakes");
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
fn threads_make_use_and_remove_objects_at_once() {
    passes("threads");
}

#[test]
fn a_forked_child_gets_errors_and_its_parent_goes_on() {
    passes("forks");
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
